"""Faults in a program that runs: the table that tests/faults/faults.cc reads, which LD_PRELOAD puts into it."""
import ctypes
import mmap
import os
import tempfile

FIELDS = ("allocation_fails_in", "allocations", "read_fails_in", "read_errno", "reads", "read_bytes_max", "interrupt_every",
          "write_bytes_left", "write_errno", "read_delay_us", "clock_offset_ns", "map_fails_in", "maps", "wake_delay_us", "threads_left")
NEVER = ("allocation_fails_in", "read_fails_in", "write_bytes_left", "map_fails_in", "threads_left")  # at -1


class _Table(ctypes.Structure):
    _fields_ = [(name, ctypes.c_int64) for name in FIELDS]


class Faults:
    """`faults.NAME = n` takes effect at once; `env` is the environment for starting the program."""

    def __init__(self, library, **begin):
        file = tempfile.NamedTemporaryFile(prefix="faults-")
        file.truncate(ctypes.sizeof(_Table))
        table = _Table.from_buffer(mmap.mmap(file.fileno(), ctypes.sizeof(_Table)))
        self.__dict__.update(file=file, table=table, env={**os.environ, "LD_PRELOAD": str(library), "FAULTS_FILE": file.name})
        self.none()
        for name, value in begin.items():
            setattr(self, name, value)

    def none(self):
        """Ends all faults."""
        for name in FIELDS:
            if name not in ("allocations", "reads", "maps"):
                setattr(self, name, -1 if name in NEVER else 0)

    def __getattr__(self, name):
        return getattr(self.table, name)

    def __setattr__(self, name, value):
        assert name in FIELDS, name
        setattr(self.table, name, value)
