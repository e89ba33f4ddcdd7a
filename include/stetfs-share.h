/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * SHARE on a device that `stetfs device serve --ftl page` serves: ioctls of its file `disk`.
 *
 * A pair makes `dst` read as `src` does, without copying. All in bytes, multiples of the unit. A
 * batch is there as a whole or not after a power cut, and is durable when the call returns. What is
 * written to one of the two later leaves the other as it was.
 *
 *	struct stetfs_share *batch = calloc(1, STETFS_SHARE_SIZE(n));
 *	batch->count = n;
 *	batch->pairs[0] = (struct stetfs_share_pair){ .dst = 0, .src = 1 << 20, .len = 4096 };
 *	if (ioctl(fd, STETFS_IOC_SHARE(n), batch)) ...
 *
 * Errors: E2BIG, more units than the device shares at once; EMLINK, a content would be in more
 * places than it can note; EINVAL, no whole units, or a destination that occurs twice; ENOTTY, a
 * device that cannot share. Then nothing was done.
 */
#ifndef STETFS_SHARE_H
#define STETFS_SHARE_H

#include <linux/ioctl.h>
#include <linux/types.h>

struct stetfs_share_pair {
	__u64 dst;
	__u64 src;
	__u64 len;
};

struct stetfs_share {
	__u32 count;
	__u32 flags; /* 0 */
	struct stetfs_share_pair pairs[];
};

/* Pairs of one call at most: what the number of an ioctl has room for. */
#define STETFS_SHARE_MAX 682

#define STETFS_SHARE_SIZE(n) \
	(sizeof(struct stetfs_share) + (n) * sizeof(struct stetfs_share_pair))

#define STETFS_IOC_SHARE(n) _IOC(_IOC_WRITE, 0xef, 1, STETFS_SHARE_SIZE(n))

/* A batch is there as a whole or not. */
#define STETFS_SHARE_ATOMIC 1

struct stetfs_share_limits {
	__u32 unit;       /* bytes that are shared as a whole */
	__u32 flags;      /* STETFS_SHARE_ATOMIC */
	__u64 units;      /* of a batch */
	__u64 references; /* places of one content */
};

#define STETFS_IOC_SHARE_LIMITS _IOR(0xef, 2, struct stetfs_share_limits)

#endif
