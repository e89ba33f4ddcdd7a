/* Shares pages of the file that its argument names, through the header that users have. */
#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <stetfs-share.h>

#define PAGE 4096

static int fd;

static void must(int right, const char *what)
{
	if (!right) {
		fprintf(stderr, "%s: %s\n", what, strerror(errno));
		exit(1);
	}
}

static void put(uint64_t page, int value)
{
	char bytes[PAGE];

	memset(bytes, value, PAGE);
	must(pwrite(fd, bytes, PAGE, page * PAGE) == PAGE, "write");
}

static int get(uint64_t page)
{
	char bytes[PAGE];

	must(pread(fd, bytes, PAGE, page * PAGE) == PAGE, "read");
	return bytes[PAGE - 1];
}

/* Pairs of single pages: the first becomes the second. */
static int share(unsigned n, const uint64_t pages[][2])
{
	struct stetfs_share *batch = calloc(1, STETFS_SHARE_SIZE(n));
	int done;

	must(batch != NULL, "memory");
	batch->count = n;
	for (unsigned i = 0; i < n; i++)
		batch->pairs[i] = (struct stetfs_share_pair){
			.dst = pages[i][0] * PAGE,
			.src = pages[i][1] * PAGE,
			.len = PAGE,
		};
	done = ioctl(fd, STETFS_IOC_SHARE(n), batch);
	free(batch);
	return done;
}

int main(int argc, char **argv)
{
	struct stetfs_share_limits limits;

	must(argc == 2, "usage: share FILE");
	fd = open(argv[1], O_RDWR);
	must(fd >= 0, "open");
	must(ioctl(fd, STETFS_IOC_SHARE_LIMITS, &limits) == 0, "limits");
	must(limits.unit == PAGE && limits.flags == STETFS_SHARE_ATOMIC, "unit");
	must(limits.units == 4 && limits.references == 3, "what the device was served with");

	put(0, 1);
	put(1, 2);
	must(share(2, (uint64_t[][2]){ { 10, 0 }, { 11, 1 } }) == 0, "share");
	must(get(10) == 1 && get(11) == 2, "what was shared");
	put(0, 7);
	must(get(10) == 1 && get(0) == 7, "written later");

	uint64_t five[5][2] = { { 20, 10 }, { 21, 10 }, { 22, 10 }, { 23, 10 }, { 24, 10 } };
	must(share(5, five) < 0 && errno == E2BIG, "a batch that is too long");
	must(share(3, five) < 0 && errno == EMLINK, "too many references");
	must(share(2, five) == 0 && get(21) == 1, "as many as there may be");
	must(share(2, (uint64_t[][2]){ { 30, 0 }, { 30, 1 } }) < 0 && errno == EINVAL, "twice");
	must(get(30) == 0, "what was refused changes nothing");

	/* Not flushed: what is shared stands anyway. */
	put(2, 9);
	must(share(1, (uint64_t[][2]){ { 40, 2 } }) == 0, "share");
	put(3, 9);
	puts("done");
	return 0;
}
