"""Output that goes to the descriptors 1 and 2 (os.write, programs, libraries in C) is the execution's in which it is written.

ipykernel has a thread that reads it from a pipe. An execution may end before that thread has read all, and the rest would be
of none. So each execution's end takes what is in the pipe. Bytes that are no text end neither the thread nor a character that
is read in two parts."""

import codecs
import contextlib
import fcntl
import os
import select
import struct
import sys
import termios
import threading

READ_BYTES = 64 << 10

streams = []


class Stream:
    """A stream of ipykernel's, whose pipe two threads read: the holder of the lock has put all that it read into the stream."""

    def __init__(self, out):
        self.out, self.lock = out, threading.Lock()
        self.decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def read(self, most):
        """Never blocks, with the lock. None: there is nothing; b"": the pipe has ended."""
        if not select.select([self.out._fid], [], [], 0)[0]:
            return None
        data = os.read(self.out._fid, most)
        self.show(data, False)
        return data

    def show(self, data, is_last):
        if text := self.decoder.decode(data, is_last):
            self.out.write(text)

    def echo(self, data):
        with contextlib.suppress(OSError):
            os.write(self.out._original_stdstream_copy, data)

    def watch(self):
        while self.out._should_watch:
            select.select([self.out._fid], [], [])
            if not self.out._should_watch:
                return
            with self.lock:
                data = self.read(READ_BYTES)
            if data == b"":
                return
            if data:
                self.echo(data)

    def drain(self):
        """Takes all that is there now; a program that goes on writing does not hold it."""
        taken = []
        with self.lock:
            (left,) = struct.unpack("i", fcntl.ioctl(self.out._fid, termios.FIONREAD, b"\0" * 4))
            while left > 0 and (data := self.read(left)):
                taken.append(data)
                left -= len(data)
            self.show(b"", True)
        for data in taken:
            self.echo(data)
        if self.out not in (sys.stdout, sys.stderr):  # the kernel sends what those have before it says that it is done
            self.out.flush()


def watch(out):
    stream = Stream(out)
    streams.append(stream)
    stream.watch()


def drain(*_):
    for stream in streams:
        if stream.out._is_master_process() and not stream.out.closed:
            stream.drain()


def prepare():
    """Before the streams are made."""
    from ipykernel.iostream import OutStream

    OutStream._watch_pipe_fd = watch


def register(shell):
    shell.events.register("post_run_cell", drain)
