"""Changes two files of an image at once: transfer.py IMAGE. After a crash both are changed, or none."""

import sys

import stetfs


def transfer_ten(volume):
    with volume.atomic_group("/from", "/to") as transfer:
        transfer.file("/from").pwrite(b" 90", 0)
        transfer.file("/to").pwrite(b"10", 0)
    # Both stand from here on. An exception in between would have left none.


with stetfs.Volume(sys.argv[1], journal="stet") as volume:
    transfer_ten(volume)
