/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Atomic writes of files on a mount with the option `atomic`: what a descriptor writes between
 * start and commit is in the file as a whole or not at all, whatever happens, and durable when
 * commit returns. The numbers are those of F2FS, so this works there, too. docs/atomic.md has what
 * other programs see meanwhile, and examples.
 *
 * Several files that change all at once: start with one, and let the others join it before they are
 * written. Commit and abort by any of them are for all of them. F2FS has no such thing.
 *
 * The functions answer 0, or -1 with errno set, as ioctl(2). The descriptors are open for writing.
 * One file can be in an atomic write at a time, by one open.
 *
 * A write beyond what the journal can take at once fails with EFBIG and changes nothing. The
 * process that started ends the atomic write, of all its files, without a trace, when it closes a
 * descriptor of one of these opens, or dies. So do the owner of a file, root, and time, if nothing
 * is changed: what is written then fails with EIO until the descriptor says commit or start, which
 * fail, or abort.
 */
#ifndef STETFS_ATOMIC_H
#define STETFS_ATOMIC_H

#include <linux/ioctl.h>
#include <linux/types.h>
#include <sys/ioctl.h>

#define STETFS_IOC_START_ATOMIC_WRITE  _IO(0xf5, 1)
#define STETFS_IOC_COMMIT_ATOMIC_WRITE _IO(0xf5, 2)
#define STETFS_IOC_ABORT_ATOMIC_WRITE  _IO(0xf5, 5)
#define STETFS_IOC_GET_FEATURES        _IOR(0xf5, 12, __u32)

/* The group that a descriptor has started, as a number that the other descriptors of the program
 * join it by. */
#define STETFS_IOC_GET_ATOMIC_GROUP  _IOR(0xf5, 64, __u64)
#define STETFS_IOC_JOIN_ATOMIC_GROUP _IOW(0xf5, 65, __u64)

/* Ends the atomic write of a file, whoever began it. */
#define STETFS_IOC_BREAK_ATOMIC_WRITE _IO(0xf5, 66)

/* Of the features: this file can be written atomically. */
#define STETFS_FEATURE_ATOMIC_WRITE 0x4

/* Whether a file can be written atomically: 1, or 0 where the file system, or the mount, has no
 * such thing. */
static inline int stetfs_atomic_offered(int fd)
{
	__u32 features = 0;

	if (ioctl(fd, STETFS_IOC_GET_FEATURES, &features) < 0)
		return 0;
	return (features & STETFS_FEATURE_ATOMIC_WRITE) != 0;
}

/*
 * What is written by this descriptor from here on is one. Errors: EOPNOTSUPP, or ENOTTY on other
 * file systems, where there is no such thing; EBUSY, another has started with this file; EBADF, it
 * is not open for writing; EIO, once, what was started before was ended by others or by time.
 */
static inline int stetfs_atomic_start(int fd)
{
	return ioctl(fd, STETFS_IOC_START_ATOMIC_WRITE);
}

/*
 * The same, as one with what is written by `started`, with which this process has started or joined
 * before: on the same mount, another file. Errors: EINVAL, `started` has not, or that has ended, or
 * `fd` has started without it; EBUSY, another has started with this file; EFBIG, so many files are
 * beyond what the journal can take at once; EPERM, another process started; ENOTTY, there is no
 * such thing.
 */
static inline int stetfs_atomic_join(int fd, int started)
{
	__u64 group;

	if (ioctl(started, STETFS_IOC_GET_ATOMIC_GROUP, &group) < 0)
		return -1;
	return ioctl(fd, STETFS_IOC_JOIN_ATOMIC_GROUP, &group);
}

/*
 * Makes it what the file holds, durably; the files of a group, all at once. Errors: EINVAL, nothing
 * was started with this descriptor, or it has ended; EIO and others of the device, after which all
 * of it is there when the volume is mounted again, or nothing.
 */
static inline int stetfs_atomic_commit(int fd)
{
	return ioctl(fd, STETFS_IOC_COMMIT_ATOMIC_WRITE);
}

/* Leaves the file as it was, and all others of its group. Error: EINVAL, there is nothing to
 * abort. */
static inline int stetfs_atomic_abort(int fd)
{
	return ioctl(fd, STETFS_IOC_ABORT_ATOMIC_WRITE);
}

/*
 * Ends the atomic write of the file that a descriptor is open of, in whatever way, whoever started
 * it; with all other files of its group. Errors: EINVAL, there is none; EPERM, the caller is not
 * the owner of the file or root; ENOTTY or EOPNOTSUPP, there is no such thing.
 */
static inline int stetfs_atomic_break(int fd)
{
	return ioctl(fd, STETFS_IOC_BREAK_ATOMIC_WRITE);
}

#endif
