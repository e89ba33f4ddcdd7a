/*
 * Moves an amount between two accounts, each a file of one number, through the header that users
 * have: atomic_group FROM TO AMOUNT [abort]. Prints what they hold then, as the program sees it.
 */
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include <stetfs_atomic.h>

static int failed(const char *what)
{
	fprintf(stderr, "%s: %s\n", what, strerror(errno));
	return 1;
}

static long amount_of(int account)
{
	char text[16] = "";

	if (pread(account, text, sizeof(text) - 1, 0) < 0)
		return -1;
	return atol(text);
}

/* Writes the number; 0 if it is there. */
static int set(int account, long amount)
{
	char text[16];

	snprintf(text, sizeof(text), "%8ld", amount);
	return pwrite(account, text, 8, 0) == 8 ? 0 : -1;
}

static int move(int from, int to, long amount, int changes_its_mind)
{
	if (stetfs_atomic_start(from) < 0)
		return -1;
	if (stetfs_atomic_join(to, from) == 0 &&
	    set(from, amount_of(from) - amount) == 0 &&
	    set(to, amount_of(to) + amount) == 0 && !changes_its_mind &&
	    stetfs_atomic_commit(to) == 0)
		return 0; /* a crash before leaves both as they were */
	stetfs_atomic_abort(from);
	return changes_its_mind ? 0 : -1;
}

int main(int argc, char **argv)
{
	int from, to, alone;

	if (argc < 4)
		return failed("usage: atomic_group FROM TO AMOUNT [abort]");
	from = open(argv[1], O_RDWR);
	to = open(argv[2], O_RDWR);
	alone = open(argv[2], O_RDWR);
	if (from < 0 || to < 0 || alone < 0)
		return failed("open");
	if (move(from, to, atol(argv[3]), argc > 4) < 0)
		return failed("move");
	if (stetfs_atomic_join(alone, from) == 0 || errno != EINVAL)
		return failed("joined what has ended");
	printf("%ld %ld\n", amount_of(from), amount_of(to));
	return 0;
}
