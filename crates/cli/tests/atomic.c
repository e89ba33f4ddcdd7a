/*
 * Writes a file atomically, through the header that users have: atomic FILE OFFERED. The file holds
 * 3 bytes; OFFERED is 1 on a mount with the option `atomic`, and else the number of the error that
 * is expected, below zero.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <stetfs_atomic.h>

static void must(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

/* Puts a record into a database, and in its first byte how many there are. */
static int put(int db, const void *record, size_t len, off_t at, char count)
{
	if (stetfs_atomic_start(db) < 0)
		return -1;
	if (pwrite(db, record, len, at) == (ssize_t)len &&
	    pwrite(db, &count, 1, 0) == 1 &&
	    stetfs_atomic_commit(db) == 0)
		return 0; /* a crash before leaves none of it */
	stetfs_atomic_abort(db);
	return -1;
}

static void holds(const char *path, const char *text)
{
	char read_[64] = "";
	int fd = open(path, O_RDONLY);

	must(fd >= 0 && read(fd, read_, sizeof(read_) - 1) >= 0, "read");
	close(fd);
	if (strcmp(read_, text) != 0) {
		fprintf(stderr, "\"%s\" is there for \"%s\"\n", read_, text);
		exit(1);
	}
}

int main(int argc, char **argv)
{
	int fd, other, readable, offered;

	must(argc == 3, "usage: atomic FILE OFFERED");
	offered = atoi(argv[2]);
	fd = open(argv[1], O_RDWR);
	other = open(argv[1], O_RDWR);
	readable = open(argv[1], O_RDONLY);
	must(fd >= 0 && other >= 0 && readable >= 0, "open");
	must(stetfs_atomic_offered(fd) == (offered == 1), "whether it is offered");
	must(stetfs_atomic_offered(-1) == 0, "a descriptor that is none");
	if (offered != 1) {
		must(stetfs_atomic_start(fd) < 0 && errno == -offered, "start");
		must(put(fd, "abc", 3, 3, '1') < 0, "an atomic write where there is none");
		holds(argv[1], "old");
		puts("done");
		return 0;
	}

	must(put(fd, "abc", 3, 3, '1') == 0, "put");
	holds(argv[1], "1ldabc");

	must(stetfs_atomic_commit(fd) < 0 && errno == EINVAL, "a commit of nothing");
	must(stetfs_atomic_abort(fd) < 0 && errno == EINVAL, "an abort of nothing");
	must(stetfs_atomic_start(readable) < 0, "start with a descriptor to read");
	must(stetfs_atomic_start(-1) < 0 && errno == EBADF, "start with none");

	must(stetfs_atomic_start(fd) == 0, "start");
	must(stetfs_atomic_start(other) < 0 && errno == EBUSY, "start with another");
	must(pwrite(fd, "no", 2, 4) == 2 && ftruncate(fd, 6) == 0, "write");
	must(fsync(fd) == 0, "fsync, which commits nothing");
	must(stetfs_atomic_abort(fd) == 0, "abort");
	holds(argv[1], "1ldabc");

	must(stetfs_atomic_start(fd) == 0 && pwrite(fd, "no", 2, 0) == 2, "start");
	close(fd);
	holds(argv[1], "1ldabc");
	must(put(other, "def", 3, 6, '2') == 0, "put by another");
	holds(argv[1], "2ldabcdef");
	puts("done");
	return 0;
}
