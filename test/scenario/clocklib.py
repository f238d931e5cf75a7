"""A program's idea of the time, moved at will (clock_shim.c)."""

import os
import pathlib
import shutil
import struct
import subprocess

import pytest

HERE = pathlib.Path(__file__).resolve().parent


class Clock:
    """A directory with the shim, the file that moves the clock, and programs that start with both."""

    def __init__(self, directory):
        if os.environ.get("CAY_SANITIZED"):
            pytest.skip("a sanitized program cannot have a library before its own")
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if not compiler:
            pytest.skip("no compiler for the shim")
        self.directory = pathlib.Path(directory)
        self.file, self.library = self.directory / "clock", self.directory / "clock.so"
        subprocess.run([compiler, "-shared", "-fPIC", "-O1", "-o", self.library, HERE / "clock_shim.c"], check=True)
        self.real_s = self.monotonic_s = 0
        self.write()
        self.lines = f"export LD_PRELOAD={self.library} CLOCK_SHIM_FILE={self.file}"

    def write(self):
        with open(self.file, "r+b" if self.file.exists() else "wb") as f:
            f.write(struct.pack("qq", self.real_s, self.monotonic_s))

    def jump_to(self, real_s):
        self.real_s = real_s
        self.write()

    def pass_by(self, seconds):
        """So much time is over for the program's timers, when it looks next."""
        self.monotonic_s += seconds
        self.write()

    def program(self, path):
        """The path of one that starts it with this clock."""
        wrapper = self.directory / f"{pathlib.Path(path).name}-with-clock"
        wrapper.write_text(f'#!/bin/sh\n{self.lines}\nexec {path} "$@"\n')
        wrapper.chmod(0o755)
        return wrapper
