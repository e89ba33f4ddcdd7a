#!/usr/bin/env python3
"""Makes the wheel of the Python module, with the library in it: needs Python alone.

    cargo build --release -p stetfs-capi
    python3 python/build_wheel.py --library target/release/libstetfs_c.so --out dist
    pip install dist/stetfs-*.whl

It is what `pip install ./python` builds by, too (pyproject.toml, PEP 517): then the library is the
file $STETFS_LIBRARY, or else built with cargo."""

import argparse
import base64
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sysconfig
import zipfile

HERE = pathlib.Path(__file__).resolve().parent


def build_wheel(wheel_directory, config_settings=None, metadata_directory=None):
    """PEP 517: makes the wheel in the directory, and gives its name."""
    return make(library(), pathlib.Path(wheel_directory)).name


def build_sdist(sdist_directory, config_settings=None):
    """PEP 517: there is none, for the library's source is not below this folder."""
    raise NotImplementedError("a source distribution of the Python module alone cannot be built")


def library():
    """The library: the one that is named, or built."""
    named = os.environ.get("STETFS_LIBRARY")
    if named:
        return pathlib.Path(named)
    cargo = [os.environ.get("CARGO", "cargo")]
    said = subprocess.run(
        [*cargo, "build", "--release", "-p", "stetfs-capi", "--message-format=json-render-diagnostics"],
        cwd=HERE.parent, stdout=subprocess.PIPE, check=True, text=True).stdout
    for line in said.splitlines():
        for name in json.loads(line).get("filenames", []):
            if name.endswith("/libstetfs_c.so"):
                return pathlib.Path(name)
    raise FileNotFoundError("cargo built no libstetfs_c.so")


def make(library, out):
    """Makes the wheel in the folder `out`, and gives its path."""
    manifest = (HERE.parent / "Cargo.toml").read_text()
    version = re.search(r'^version = "(.+)"', manifest, re.MULTILINE)[1]
    # Any Python 3, but this machine: the library is not bound to a Python.
    tag = f"py3-none-{re.sub('[-.]', '_', sysconfig.get_platform())}"
    info = f"stetfs-{version}.dist-info"
    files = {f"stetfs/{path.name}": path.read_bytes() for path in sorted((HERE / "stetfs").glob("*.py"))}
    files["stetfs/libstetfs.so"] = library.read_bytes()
    files[f"{info}/METADATA"] = (
        f"Metadata-Version: 2.1\nName: stetfs\nVersion: {version}\n"
        "Summary: ext4 volumes in image files and on block devices, without a mount\n"
        "License: MIT OR Apache-2.0\nRequires-Python: >=3.9\n").encode()
    files[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: stetfs\nRoot-Is-Purelib: false\nTag: {tag}\n").encode()

    def line(name, data):
        digest = base64.urlsafe_b64encode(hashlib.sha256(data).digest()).rstrip(b"=").decode()
        return f"{name},sha256={digest},{len(data)}\n"

    record = "".join(line(name, data) for name, data in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    out.mkdir(parents=True, exist_ok=True)
    wheel = out / f"stetfs-{version}-{tag}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, data in files.items():
            # A fixed time: what is built again is the same.
            entry = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            entry.external_attr = (0o755 if name.endswith(".so") else 0o644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(entry, data)
    return wheel


def main():
    parser = argparse.ArgumentParser(description="Makes the wheel of the Python module.")
    parser.add_argument("--library", type=pathlib.Path, required=True, help="libstetfs_c.so as cargo built it")
    parser.add_argument("--out", type=pathlib.Path, default=pathlib.Path("dist"), help="the folder it goes to")
    arguments = parser.parse_args()
    print(make(arguments.library, arguments.out))


if __name__ == "__main__":
    main()
