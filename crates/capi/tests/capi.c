/* What a C program does with libstetfs. argv[1]: an image of ext4. */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "stetfs.h"

#define CHECK(what)                                                                                \
    do {                                                                                           \
        if (!(what)) {                                                                             \
            fprintf(stderr, "line %d: %s: %s\n", __LINE__, #what, stetfs_last_error());            \
            exit(1);                                                                               \
        }                                                                                          \
    } while (0)

_Static_assert(sizeof(struct stetfs_time) == 16, "stat.rs");
_Static_assert(sizeof(struct stetfs_stat) == 120, "stat.rs");
_Static_assert(offsetof(struct stetfs_stat, mode) == 32, "stat.rs");
_Static_assert(offsetof(struct stetfs_stat, atime) == 56, "stat.rs");
_Static_assert(sizeof(struct stetfs_space) == 40, "stat.rs");
_Static_assert(sizeof(struct stetfs_dirent) == 264, "dir.rs");

static void files(stetfs_volume *volume)
{
    stetfs_file *file = NULL;
    char read[64] = {0};
    CHECK(stetfs_file_open(volume, "/var/log/messages", O_RDWR | O_CREAT | O_EXCL, 0640, &file) == 0);
    CHECK(stetfs_file_write(file, "hello, ", 7) == 7);
    CHECK(stetfs_file_write(file, "world\n", 6) == 6);
    CHECK(stetfs_file_pwrite(file, "W", 1, 7) == 1);
    CHECK(stetfs_file_sync(file, 1) == 0);
    CHECK(stetfs_file_seek(file, 0, SEEK_SET) == 0);
    CHECK(stetfs_file_read(file, read, sizeof read) == 13);
    CHECK(strcmp(read, "hello, World\n") == 0);
    CHECK(stetfs_file_read(file, read, sizeof read) == 0);
    CHECK(stetfs_file_pread(file, read, 5, 7) == 5 && memcmp(read, "World", 5) == 0);
    CHECK(stetfs_file_seek(file, -1, SEEK_SET) == -EINVAL);
    CHECK(stetfs_file_seek(file, -6, SEEK_END) == 7);
    CHECK(stetfs_file_truncate(file, 5) == 0);
    struct stetfs_stat stat;
    CHECK(stetfs_file_stat(file, &stat) == 0);
    CHECK(stat.size == 5 && S_ISREG(stat.mode) && (stat.mode & 07777) == 0640 && stat.nlink == 1);
    CHECK(stetfs_close(NULL) == 0);
    CHECK(stetfs_file_close(file) == 0);
    CHECK(stetfs_file_open(volume, "/var/log/messages", O_RDWR | O_CREAT | O_EXCL, 0640, &file) == -EEXIST);
    CHECK(stetfs_file_open(volume, "/var/log/messages", O_WRONLY | O_APPEND, 0, &file) == 0);
    CHECK(stetfs_file_write(file, "!", 1) == 1);
    CHECK(stetfs_file_read(file, read, 1) == -EBADF);
    CHECK(stetfs_file_sync(file, 0) == 0);
    CHECK(stetfs_file_close(file) == 0);
}

/* Makes a volume beside an image. */
static void made(const char *image)
{
    char path[4096];
    CHECK(snprintf(path, sizeof path, "%s.new", image) < (int)sizeof path);
    CHECK(stetfs_format(path, NULL) == -EINVAL);
    CHECK(stetfs_format(path, "size=32M,lable=x") == -EINVAL);
    CHECK(strstr(stetfs_last_error(), "did you mean label?") != NULL);
    CHECK(stetfs_format(path, "size=32M,label=made,feature=bigalloc,feature=^resize_inode") == 0);
    CHECK(stetfs_format(path, "") == -EEXIST);
    stetfs_volume *volume = NULL;
    CHECK(stetfs_open(path, NULL, &volume) == 0);
    CHECK(stetfs_format(path, "force") == -EBUSY);
    CHECK(stetfs_mkdir(volume, "/made", 0) == 0);
    CHECK(stetfs_close(volume) == 0);
    CHECK(stetfs_format(path, "force") == 0);
}

static void names(stetfs_volume *volume)
{
    char target[16] = {0};
    struct stetfs_stat stat;
    CHECK(stetfs_symlink(volume, "log/messages", "/var/link") == 0);
    CHECK(stetfs_readlink(volume, "/var/link", target, 3) == 12 && strcmp(target, "log") == 0);
    CHECK(stetfs_lstat(volume, "/var/link", &stat) == 0 && S_ISLNK(stat.mode));
    CHECK(stetfs_stat(volume, "/var/link", &stat) == 0 && S_ISREG(stat.mode) && stat.size == 6);
    CHECK(stetfs_link(volume, "/var/log/messages", "/var/other") == 0);
    CHECK(stetfs_rename(volume, "/var/other", "/var/third") == 0);
    CHECK(stetfs_chmod(volume, "/var/third", 0600) == 0);
    CHECK(stetfs_lchown(volume, "/var/third", 1000, UINT32_MAX) == 0);
    CHECK(stetfs_stat(volume, "/var/log/messages", &stat) == 0);
    CHECK(stat.nlink == 2 && (stat.mode & 07777) == 0600 && stat.uid == 1000 && stat.gid == 0);
    CHECK(stat.mtime.sec > 1700000000);
    CHECK(stetfs_rmdir(volume, "/var") == -ENOTEMPTY);
    CHECK(stetfs_unlink(volume, "/var/third") == 0);
    CHECK(stetfs_mkdir(volume, "/empty", 0) == 0 && stetfs_mkdir(volume, "/empty", 0) == -EEXIST);
    CHECK(stetfs_mkdir(volume, "/empty", 1) == 0 && stetfs_rmdir(volume, "/empty") == 0);

    stetfs_dir *dir = NULL;
    struct stetfs_dirent entry;
    int seen = 0, next;
    CHECK(stetfs_dir_open(volume, "/var", &dir) == 0);
    while ((next = stetfs_dir_next(dir, &entry)) == 1) {
        seen += strcmp(entry.name, "log") == 0 && entry.kind == DT_DIR && entry.len == 3;
        seen += strcmp(entry.name, "link") == 0 && entry.kind == DT_LNK ? 10 : 0;
    }
    CHECK(next == 0 && seen == 11);
    CHECK(stetfs_dir_close(dir) == 0);
}

/* Of the files /var/a and /var/b. */
static stetfs_group *group_of(stetfs_volume *volume)
{
    const char *paths[] = {"/var/a", "/var/b"};
    stetfs_group *group = NULL;
    CHECK(stetfs_group_open(volume, paths, 2, &group) == 0 && group != NULL);
    return group;
}

static void holds(stetfs_volume *volume, const char *path, const char *text)
{
    stetfs_file *file = NULL;
    char read[64] = {0};
    CHECK(stetfs_file_open(volume, path, O_RDONLY, 0, &file) == 0);
    CHECK(stetfs_file_read(file, read, sizeof read - 1) >= 0 && strcmp(read, text) == 0);
    CHECK(stetfs_file_close(file) == 0);
}

static void put(stetfs_volume *volume, const char *path, const char *text)
{
    stetfs_file *file = NULL;
    CHECK(stetfs_file_open(volume, path, O_WRONLY | O_CREAT | O_TRUNC, 0600, &file) == 0);
    CHECK(stetfs_file_write(file, text, strlen(text)) == (int64_t)strlen(text));
    CHECK(stetfs_file_close(file) == 0);
}

/* What makes no sense is told, and opens nothing. */
static void no_groups(stetfs_volume *volume)
{
    stetfs_group *group = NULL;
    const char *there[] = {"/var/a", "/var/b"}, *null[] = {"/var/a", NULL}, *none[] = {"/var/a", "/no"};
    const char *directory[] = {"/var"};
    CHECK(stetfs_group_open(NULL, there, 2, &group) == -EINVAL);
    CHECK(stetfs_group_open(volume, NULL, 2, &group) == -EINVAL);
    CHECK(stetfs_group_open(volume, NULL, 0, &group) == -EINVAL);
    CHECK(stetfs_group_open(volume, there, 0, &group) == -EINVAL);
    CHECK(stetfs_group_open(volume, there, SIZE_MAX, &group) == -EINVAL);
    CHECK(stetfs_group_open(volume, there, SIZE_MAX / 8 + 2, &group) == -EINVAL);
    CHECK(stetfs_group_open(volume, null, 2, &group) == -EINVAL);
    CHECK(stetfs_group_open(volume, there, 2, NULL) == -EINVAL);
    CHECK(stetfs_group_open(volume, none, 2, &group) == -ENOENT);
    CHECK(stetfs_group_open(volume, directory, 1, &group) == -EISDIR);
    CHECK(group == NULL);
    CHECK(stetfs_group_commit(NULL) == -EINVAL && stetfs_group_abort(NULL) == -EINVAL);
    CHECK(stetfs_group_limit(NULL) == -EINVAL && stetfs_group_size(NULL, "/var/a") == -EINVAL);
    CHECK(stetfs_group_pwrite(NULL, "/var/a", "x", 1, 0) == -EINVAL);
    CHECK(stetfs_group_close(NULL) == 0);
    CHECK(stetfs_group_break(NULL, there[0]) == -EINVAL);
    CHECK(stetfs_group_break(volume, NULL) == -EINVAL);
    CHECK(stetfs_group_break(volume, there[0]) == -EINVAL);
    CHECK(stetfs_group_open(volume, there, 2, &group) == 0);
    CHECK(stetfs_group_pwrite(group, there[0], "broken", 6, 0) == 6);
    CHECK(stetfs_group_break(volume, there[1]) == 0);
    CHECK(stetfs_group_pwrite(group, there[0], "x", 1, 0) == -EINVAL);
    CHECK(strstr(stetfs_last_error(), "aborted by") != NULL);
    CHECK(stetfs_group_commit(group) == -EINVAL);
    CHECK(stetfs_group_close(group) == 0);
}

/* A group that has ended is there still, and does nothing. */
static void has_ended(stetfs_group *group, const char *how)
{
    char read[4];
    CHECK(stetfs_group_commit(group) == -EINVAL && strstr(stetfs_last_error(), how) != NULL);
    CHECK(stetfs_group_abort(group) == -EINVAL && strstr(stetfs_last_error(), how) != NULL);
    CHECK(stetfs_group_pread(group, "/var/a", read, sizeof read, 0) == -EINVAL);
    CHECK(stetfs_group_pwrite(group, "/var/a", "x", 1, 0) == -EINVAL);
    CHECK(stetfs_group_truncate(group, "/var/a", 0) == -EINVAL);
    CHECK(stetfs_group_zero(group, "/var/a", 0, 1) == -EINVAL);
    CHECK(stetfs_group_size(group, "/var/a") == -EINVAL && stetfs_group_limit(group) == -EINVAL);
    CHECK(stetfs_group_close(group) == 0);
}

static void groups(stetfs_volume *volume)
{
    char read[64] = {0};
    put(volume, "/var/a", "first");
    put(volume, "/var/b", "second");
    no_groups(volume);
    stetfs_group *group = group_of(volume), *another = NULL;
    const char *b[] = {"/var/b"};
    CHECK(stetfs_group_open(volume, b, 1, &another) == -EBUSY && another == NULL);
    CHECK(stetfs_group_pwrite(group, "/var/a", "FIRST one", 9, 0) == 9);
    CHECK(stetfs_group_zero(group, "/var/a", 5, 1) == 0);
    CHECK(stetfs_group_zero(group, "/var/a", 9, UINT64_MAX) == 0);
    CHECK(stetfs_group_truncate(group, "/var/b", 3) == 0);
    CHECK(stetfs_group_size(group, "/var/a") == 9 && stetfs_group_size(group, "/var/b") == 3);
    CHECK(stetfs_group_pread(group, "/var/a", read, sizeof read, 0) == 9);
    CHECK(memcmp(read, "FIRST\0one", 9) == 0);
    CHECK(stetfs_group_pread(group, "/var/b", read, sizeof read, 3) == 0);
    holds(volume, "/var/a", "first");
    holds(volume, "/var/b", "second");
    stetfs_file *file = NULL;
    CHECK(stetfs_file_open(volume, "/var/b", O_RDWR, 0, &file) == 0);
    CHECK(stetfs_file_pwrite(file, "x", 1, 0) == -EBUSY);

    CHECK(stetfs_group_pwrite(group, "/var/log/messages", "x", 1, 0) == -EINVAL);
    CHECK(strcmp(stetfs_last_error(), "cannot find /var/log/messages: it is not in the atomic group") == 0);
    CHECK(stetfs_group_size(group, NULL) == -EINVAL && stetfs_group_size(group, "") == -EINVAL);
    CHECK(stetfs_group_pwrite(group, "/var/a", NULL, 1, 0) == -EINVAL);
    CHECK(stetfs_group_pread(group, "/var/a", NULL, 1, 0) == -EINVAL);
    CHECK(stetfs_group_pwrite(group, "/var/a", "x", 1, UINT64_MAX) == -EFBIG);
    CHECK(stetfs_group_truncate(group, "/var/a", UINT64_MAX) == -EFBIG);
    CHECK(stetfs_group_limit(group) > 0);
    CHECK(stetfs_group_size(group, "/var/a") == 9);

    CHECK(stetfs_group_commit(group) == 0);
    holds(volume, "/var/a", "FIRST");
    holds(volume, "/var/b", "sec");
    has_ended(group, "committed");
    CHECK(stetfs_file_pwrite(file, "S", 1, 0) == 1);

    group = group_of(volume);
    /* More than the volume has: the group holds what there is room for. */
    enum { MUCH = 48 << 20 };
    char *much = calloc(1, MUCH);
    CHECK(much != NULL && stetfs_group_pwrite(group, "/var/a", much, MUCH, 0) == -ENOSPC);
    free(much);
    holds(volume, "/var/a", "FIRST");
    CHECK(stetfs_group_truncate(group, "/var/a", 0) == 0);
    CHECK(stetfs_group_abort(group) == 0);
    has_ended(group, "aborted");
    /* One that is closed is aborted. */
    group = group_of(volume);
    CHECK(stetfs_group_pwrite(group, "/var/a", "nothing", 7, 0) == 7);
    CHECK(stetfs_group_close(group) == 0);
    holds(volume, "/var/a", "FIRST");
    CHECK(stetfs_file_pwrite(file, "!", 1, 3) == 1);
    CHECK(stetfs_file_close(file) == 0);
    holds(volume, "/var/b", "Sec!");
}

int main(int argc, char **argv)
{
    stetfs_volume *volume = NULL;
    struct stetfs_stat stat;
    struct stetfs_space space;
    CHECK(argc == 2 && strlen(stetfs_version()) >= 5);
    CHECK(stetfs_open(argv[1], "jounal=ldj", &volume) == -EINVAL);
    CHECK(strstr(stetfs_last_error(), "journal") != NULL && volume == NULL);
    CHECK(stetfs_open("/no/such.img", NULL, &volume) == -ENOENT);
    CHECK(stetfs_open(NULL, NULL, &volume) == -EINVAL && stetfs_sync(NULL) == -EINVAL);
    /* All that a journal can be made of is in the library. */
    const char *journals[] = {"journal=ldj", "journal=ijournal", "journal=zjournal", "journal=afs", "journal=data"};
    for (unsigned i = 0; i < sizeof journals / sizeof *journals; i++) {
        CHECK(stetfs_open(argv[1], journals[i], &volume) == 0);
        CHECK(stetfs_mkdir(volume, journals[i], 0) == 0);
        CHECK(stetfs_close(volume) == 0);
    }
    CHECK(stetfs_open(argv[1], "cache=16M", &volume) == 0);
    CHECK(stetfs_stat(volume, "/journal=afs", &stat) == 0 && S_ISDIR(stat.mode));
    stetfs_volume *second = NULL;
    CHECK(stetfs_open(argv[1], NULL, &second) == -EBUSY);
    CHECK(stetfs_space(volume, &space) == 0 && space.available > 0 && space.total > space.free);
    CHECK(stetfs_mkdir(volume, "/var/log", 1) == 0);
    files(volume);
    names(volume);
    CHECK(stetfs_stat(volume, "/no/such", &stat) == -ENOENT);
    CHECK(strcmp(stetfs_last_error(), "cannot look at /no/such: No such file or directory (os error 2)") == 0);
    CHECK(stetfs_sync(volume) == 0);
    const char *paths[] = {"/var/log/messages"};
    stetfs_group *group = NULL;
    CHECK(stetfs_group_open(volume, paths, 1, &group) == -EOPNOTSUPP && group == NULL);
    CHECK(strstr(stetfs_last_error(), "journal=data, ldj, stet or afs") != NULL);
    CHECK(stetfs_close(volume) == 0);
    CHECK(stetfs_open(argv[1], "journal=stet", &volume) == 0);
    groups(volume);
    group = group_of(volume);
    CHECK(stetfs_group_pwrite(group, "/var/b", "nothing", 7, 0) == 7);
    /* A group holds the volume. */
    CHECK(stetfs_close(volume) == -EBUSY && stetfs_open(argv[1], NULL, &volume) == -EBUSY);
    CHECK(stetfs_group_close(group) == 0);
    CHECK(stetfs_open(argv[1], "ro", &volume) == 0);
    holds(volume, "/var/b", "Sec!");
    CHECK(stetfs_mkdir(volume, "/x", 0) == -EROFS);
    CHECK(stetfs_close(volume) == 0);
    made(argv[1]);
    return 0;
}
