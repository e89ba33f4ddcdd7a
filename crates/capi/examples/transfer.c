/* Changes two files of an image at once: transfer IMAGE. After a crash both are changed, or none.
 */
#include <stdio.h>

#include "stetfs.h"

static int transfer_ten(stetfs_volume *volume)
{
    int done = 0;
    const char *paths[] = {"/from", "/to"};
    stetfs_group *transfer;
    if (stetfs_group_open(volume, paths, 2, &transfer) == 0) {
        done = stetfs_group_pwrite(transfer, "/from", " 90", 3, 0) == 3 &&
               stetfs_group_pwrite(transfer, "/to", "10", 2, 0) == 2 &&
               stetfs_group_commit(transfer) == 0;
        stetfs_group_close(transfer); /* aborts what was not committed */
    }
    return done;
}

int main(int argc, char **argv)
{
    stetfs_volume *volume;
    if (argc == 2 && stetfs_open(argv[1], "journal=stet", &volume) == 0) {
        int done = transfer_ten(volume);
        if (!done)
            fprintf(stderr, "%s\n", stetfs_last_error());
        return stetfs_close(volume) == 0 && done ? 0 : 1;
    }
    fprintf(stderr, "%s\n", argc == 2 ? stetfs_last_error() : "usage: transfer IMAGE");
    return 1;
}
