/*
 * StetFS for C: ext4 volumes in image files and on block devices, without a mount.
 *
 * Link with -lstetfs. Functions answer 0 or a count, or an errno below zero, such as -ENOENT;
 * stetfs_last_error() then says what was tried, the path and the reason.
 *
 * Paths are UTF-8 or any bytes but NUL; they begin at the volume's root, with a slash or without.
 * Symbolic links are followed inside the volume. There are no users: whoever may write the image
 * may do all in it, and new files are root's unless owner=UID:GID is said.
 *
 * A handle may be used by several threads at once, but for struct stetfs_dir, and for a handle that
 * is being closed. NULL handles are answered -EINVAL, and closing NULL does nothing.
 *
 * A process that has a volume open must not go on using it after fork(2).
 */
#ifndef STETFS_H
#define STETFS_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct stetfs_volume stetfs_volume;
typedef struct stetfs_file stetfs_file;
typedef struct stetfs_group stetfs_group;
typedef struct stetfs_dir stetfs_dir;

/* Since 1970; sec is below 0 before. */
struct stetfs_time {
    int64_t sec;
    uint32_t nsec;
    uint32_t reserved;
};

struct stetfs_stat {
    uint64_t ino;
    uint64_t size;   /* bytes */
    uint64_t blocks; /* of 512 bytes */
    uint64_t nlink;
    uint32_t mode; /* type and permissions: S_ISREG(mode) … */
    uint32_t uid;
    uint32_t gid;
    uint32_t major; /* of a device file */
    uint32_t minor;
    uint32_t reserved;
    struct stetfs_time atime; /* read */
    struct stetfs_time mtime; /* content changed */
    struct stetfs_time ctime; /* anything changed */
    struct stetfs_time btime; /* made */
};

struct stetfs_space {
    uint64_t total;     /* bytes for files and directories, used or not */
    uint64_t free;      /* bytes */
    uint64_t available; /* of them, bytes that are not kept for the administrator */
    uint64_t files;
    uint64_t files_free;
};

struct stetfs_dirent {
    uint32_t kind; /* DT_REG, DT_DIR … of dirent.h */
    uint32_t len;  /* bytes of the name */
    char name[256];
};

/* A text that stays. */
const char *stetfs_version(void);
/* Of the calling thread: valid until its next function that fails; "" if none has. */
const char *stetfs_last_error(void);

/*
 * Makes a new ext4 volume in an image, which need not exist, or on a block device; it is durable
 * then, and not open. -EEXIST if something is there that would be lost, unless force is said;
 * -EBUSY if it is in use, force or not.
 * options: NULL, or those of `stetfs mkfs` with _ for - (docs/mkfs.md): size=SIZE, which a new file
 * needs, like=PROFILE, label=LABEL, block_size=SIZE, feature=NAME or feature=^NAME, several times,
 * uuid=UUID, epoch=SECONDS, seed=N, force and so on.
 */
int stetfs_format(const char *image, const char *options);
/*
 * Opens the volume of an image or a block device: replays its journal, finishes what a crash
 * interrupted, and keeps others out (-EBUSY if somebody has it).
 * options: NULL, or those of `stetfs mount -o` that say how a volume is opened (docs/mounting.md:
 * ro, journal=NAME and the parts of the journal, partition=N|NAME|UUID, commit=SECONDS, cache=SIZE,
 * sync and so on), owner=UID:GID, whose new files are, and umask=OCTAL.
 */
int stetfs_open(const char *image, const char *options, stetfs_volume **volume);
/*
 * Brings all home and marks the volume clean. The handle is gone, whatever the answer. -EBUSY:
 * there are files, groups that have not ended, or listings, and the volume is closed with the last
 * of them.
 */
int stetfs_close(stetfs_volume *volume);
/* Makes durable all that was done before. */
int stetfs_sync(const stetfs_volume *volume);
int stetfs_space(const stetfs_volume *volume, struct stetfs_space *space);

/* Through symbolic links; stetfs_lstat of a link itself. */
int stetfs_stat(const stetfs_volume *volume, const char *path, struct stetfs_stat *stat);
int stetfs_lstat(const stetfs_volume *volume, const char *path, struct stetfs_stat *stat);

/* parents: also the directories above, and without complaint if it is there. Mode 0755. */
int stetfs_mkdir(const stetfs_volume *volume, const char *path, int parents);
int stetfs_unlink(const stetfs_volume *volume, const char *path);
int stetfs_rmdir(const stetfs_volume *volume, const char *path);
int stetfs_rename(const stetfs_volume *volume, const char *from, const char *to);
int stetfs_link(const stetfs_volume *volume, const char *path, const char *name);
int stetfs_symlink(const stetfs_volume *volume, const char *target, const char *path);
/* Answers the length of the target; the buffer gets what it has room for, without a NUL. */
int64_t stetfs_readlink(const stetfs_volume *volume, const char *path, void *buffer, size_t size);
int stetfs_chmod(const stetfs_volume *volume, const char *path, uint32_t mode);
/* UINT32_MAX leaves a number as it is. */
int stetfs_lchown(const stetfs_volume *volume, const char *path, uint32_t uid, uint32_t gid);

/* flags: O_RDONLY, O_WRONLY, O_RDWR, with O_CREAT, O_EXCL, O_TRUNC, O_APPEND; mode: of a new
 * file. */
int stetfs_file_open(const stetfs_volume *volume, const char *path, int flags, uint32_t mode,
                     stetfs_file **file);
/* What was written is not durable by that. */
int stetfs_file_close(stetfs_file *file);
/* Answer the bytes that were read or written, which can be fewer; 0 at the end of the file. */
int64_t stetfs_file_read(const stetfs_file *file, void *buffer, size_t len);
int64_t stetfs_file_write(const stetfs_file *file, const void *bytes, size_t len);
int64_t stetfs_file_pread(const stetfs_file *file, void *buffer, size_t len, uint64_t offset);
int64_t stetfs_file_pwrite(const stetfs_file *file, const void *bytes, size_t len,
                           uint64_t offset);
/* whence: SEEK_SET, SEEK_CUR, SEEK_END. Answers where the file is then. */
int64_t stetfs_file_seek(const stetfs_file *file, int64_t offset, int whence);
int stetfs_file_truncate(const stetfs_file *file, uint64_t size);
/* Makes durable what was done with the file; with data_only as fdatasync(2). */
int stetfs_file_sync(const stetfs_file *file, int data_only);
int stetfs_file_stat(const stetfs_file *file, struct stetfs_stat *stat);

/*
 * An atomic group: files that change all at once, or not at all, whatever happens. What is written
 * through it is seen through it alone until stetfs_group_commit; until the group ends nobody else
 * can change the content of its files (-EBUSY). It needs a journal that data goes through:
 * journal=data, ldj, stet or afs (else -EOPNOTSUPP). docs/atomic.md has the rest, and an example.
 *
 * paths: count of them, of files that are there, each in no other group (-EBUSY). The functions
 * below take a path as it was given here; for another one they answer -EINVAL.
 *
 * When it was committed or aborted the group has ended: all functions but stetfs_group_close answer
 * -EINVAL then.
 */
int stetfs_group_open(const stetfs_volume *volume, const char *const *paths, size_t count,
                      stetfs_group **group);
/*
 * Aborts the group that has the file, whoever holds it: its files are as they were, and can be
 * changed by all. The handle stays; all functions but stetfs_group_close fail with it, a commit
 * too. -EINVAL: the file is in no group.
 */
int stetfs_group_break(const stetfs_volume *volume, const char *path);
/* As the group has the file. Answers the bytes that were read; 0 at the end of the file. */
int64_t stetfs_group_pread(const stetfs_group *group, const char *path, void *buffer, size_t len,
                           uint64_t offset);
/*
 * Writes all bytes, and answers len; else the group may hold the first of them, and goes on: -EFBIG
 * beyond its limit, -ENOSPC, -EDQUOT, -ENOMEM. The three that change something fail so.
 */
int64_t stetfs_group_pwrite(const stetfs_group *group, const char *path, const void *bytes,
                            size_t len, uint64_t offset);
/* Cuts the file, or extends it with a hole. */
int stetfs_group_truncate(const stetfs_group *group, const char *path, uint64_t size);
/* As far as the file reaches. */
int stetfs_group_zero(const stetfs_group *group, const char *path, uint64_t offset, uint64_t len);
/* Bytes of the file, as the group has it. */
int64_t stetfs_group_size(const stetfs_group *group, const char *path);
/* Bytes of blocks that the group can hold, where all are allocated already. New ones count more. */
int64_t stetfs_group_limit(const stetfs_group *group);
/*
 * Makes all that was written what the files hold, for everybody at once, and durable. The group has
 * ended, whatever the answer. An error is the device's or the journal's: when the volume is opened
 * again all of it is there, or nothing.
 */
int stetfs_group_commit(const stetfs_group *group);
/* Leaves the files as they are, and ends the group. */
int stetfs_group_abort(const stetfs_group *group);
/* The handle is gone. A group that has not ended is aborted. */
int stetfs_group_close(stetfs_group *group);

int stetfs_dir_open(const stetfs_volume *volume, const char *path, stetfs_dir **dir);
/* Answers 1 with the next name, 0 behind the last. No "." and no "..". */
int stetfs_dir_next(stetfs_dir *dir, struct stetfs_dirent *entry);
int stetfs_dir_close(stetfs_dir *dir);

#ifdef __cplusplus
}
#endif

#endif
