"""Ask before starting a task on a shared GPU: the C library libgpuarb, through ctypes.

    import gpuarb

    with gpuarb.lease("asr", max_wait_ms=500, input_ms=12000) as lease:
        recognise(audio)

    try:
        with gpuarb.lease("repair"):
            repair(text)
    except gpuarb.NotAdmitted as e:      # gpuarb.Skip or gpuarb.Timeout
        print("without repair:", e.reason)

There is nothing to build: put this file where Python finds it. The library is libgpuarb.so.1, or the one that the
environment variable GPUARB_LIBRARY names. See gpuarb(3).
"""

import ctypes
import os
import threading

__all__ = ["lease", "hint", "status", "Lease", "NotAdmitted", "Timeout", "Skip", "Error", "NO_WAIT"]

OK, TIMEOUT, SKIP = 0, 1, 2
NO_WAIT = -1
REASONS = (None, "GPU_USAGE_HIGH", "QUEUE", "MEMORY", "QUOTA")
STATES = ("NORMAL", "HIGH_PRESSURE")


class Error(OSError):
    """The segment could not be used, or an argument makes no sense."""


class NotAdmitted(Exception):
    """The task may not start now. reason: GPU_USAGE_HIGH, QUEUE, MEMORY or QUOTA."""

    def __init__(self, reason, waited_ms):
        super().__init__("%s: %s after %.1f ms" % (type(self).__name__, reason, waited_ms))
        self.reason = reason
        self.waited_ms = waited_ms


class Timeout(NotAdmitted):
    """The task waited as long as it may."""


class Skip(NotAdmitted):
    """The task's class does not wait."""


class _Hint(ctypes.Structure):
    _fields_ = [("input_ms", ctypes.c_uint32), ("hold_ms", ctypes.c_uint32)]


class _Request(ctypes.Structure):
    _fields_ = [("task_class", ctypes.c_char_p), ("max_wait_ms", ctypes.c_int64), ("hint", _Hint),
                ("reserved", ctypes.c_uint64 * 2)]


class _Lease(ctypes.Structure):
    _fields_ = [("client", ctypes.c_void_p), ("birth", ctypes.c_uint64), ("cancelled", ctypes.c_uint32),
                ("reason", ctypes.c_uint32), ("waited_ns", ctypes.c_uint64), ("reserved", ctypes.c_uint64)]


class _Status(ctypes.Structure):
    _fields_ = [("state", ctypes.c_uint32), ("usage", ctypes.c_int32), ("usage_age_ms", ctypes.c_int64),
                ("high_water", ctypes.c_uint32), ("low_water", ctypes.c_uint32), ("boost_left_ms", ctypes.c_uint32),
                ("queue_len", ctypes.c_uint32), ("leases", ctypes.c_uint32), ("own_leases", ctypes.c_uint32),
                ("core_limit", ctypes.c_uint32), ("quota", ctypes.c_uint32), ("reason", ctypes.c_uint32),
                ("window_ns", ctypes.c_uint64), ("window_used_ns", ctypes.c_uint64), ("debt_ns", ctypes.c_uint64),
                ("total_ns", ctypes.c_uint64), ("throttled_ns", ctypes.c_uint64), ("mem_used", ctypes.c_uint64),
                ("mem_limit", ctypes.c_uint64), ("reserved", ctypes.c_uint64 * 4)]


_library = None


def _lib():
    """Loads the library at the first call, so that this module can be imported where there is none."""
    global _library
    if _library is None:
        path = os.environ.get("GPUARB_LIBRARY", "libgpuarb.so.1")
        try:
            lib = ctypes.CDLL(path)
        except OSError as e:
            raise Error("cannot load %s (GPUARB_LIBRARY may name another one): %s" % (path, e)) from None
        lib.gpuarb_acquire.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Request), ctypes.POINTER(_Lease)]
        lib.gpuarb_release.argtypes = [ctypes.POINTER(_Lease)]
        lib.gpuarb_cancel.argtypes = [ctypes.POINTER(_Lease)]
        lib.gpuarb_cancel.restype = None
        lib.gpuarb_hint.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Hint)]
        lib.gpuarb_status.argtypes = [ctypes.c_char_p, ctypes.POINTER(_Status)]
        lib.gpuarb_error_text.argtypes = []
        lib.gpuarb_error_text.restype = ctypes.c_char_p
        lib.gpuarb_version.argtypes = []
        lib.gpuarb_version.restype = ctypes.c_char_p
        _library = lib
    return _library


def version():
    """Returns the release of the loaded library."""
    return _lib().gpuarb_version().decode()


def _text(value):
    return None if value is None else os.fsencode(value)


def _error(result):
    return Error(-result, _lib().gpuarb_error_text().decode(errors="replace"))


class Lease:
    """A lease on the GPU for one task: a context manager, or acquire() and release()."""

    def __init__(self, task_class=None, max_wait_ms=0, gpu=None, input_ms=0, hold_ms=0):
        self._name = _text(task_class)
        self._gpu = _text(gpu)
        self._request = _Request(self._name, max_wait_ms, _Hint(input_ms, hold_ms))
        self._lease = _Lease()

    @property
    def held(self):
        return self._lease.birth != 0

    def _ask(self, request):
        """Asks, and returns the result with the exception that belongs to it; the library keeps its sentence for each thread."""
        result = _lib().gpuarb_acquire(self._gpu, request, self._lease)
        return result, _error(result) if result < 0 else None

    def _wait(self):
        """Waits in a thread of its own, so that what a signal handler raises (Ctrl-C) ends the wait of the main thread."""
        answer = []
        thread = threading.Thread(target=lambda: answer.append(self._ask(self._request)), daemon=True)
        try:
            thread.start()
            thread.join()
        except BaseException:
            self.cancel()
            thread.join()
            self.release()
            self._lease = _Lease()
            raise
        return answer[0]

    def acquire(self):
        """Waits, without keeping other Python threads from running. Raises Timeout, Skip or Error."""
        if self.held:
            raise RuntimeError("this lease is held already")
        if threading.current_thread() is not threading.main_thread():
            result, error = self._ask(self._request)
        else:
            # Most leases are given or refused at once and need no thread.
            at_once = _Request(self._name, NO_WAIT, self._request.hint)
            result, error = self._ask(at_once)
            if result == TIMEOUT and self._request.max_wait_ms != NO_WAIT:
                result, error = self._wait()
        if error:
            raise error
        if result != OK:
            reason = REASONS[self._lease.reason] if self._lease.reason < len(REASONS) else None
            raise (Skip if result == SKIP else Timeout)(reason, self.waited_ms)
        return self

    def release(self):
        """Releases the lease, if it is held."""
        if self.held:
            _lib().gpuarb_release(self._lease)

    def cancel(self):
        """Makes an acquire() that waits in another thread raise Error (ECANCELED). The lease cannot be used again."""
        _lib().gpuarb_cancel(self._lease)

    @property
    def waited_ms(self):
        return self._lease.waited_ns / 1e6

    def __enter__(self):
        return self.acquire()

    def __exit__(self, *exception):
        self.release()
        return False

    def __del__(self):
        # A lease that was never made, because its arguments made no sense, has no _lease.
        if hasattr(self, "_lease"):
            self.release()


def lease(task_class=None, max_wait_ms=0, gpu=None, input_ms=0, hold_ms=0):
    """Returns a Lease for `with`. max_wait_ms: 0 waits as long as the class says, NO_WAIT not at all."""
    return Lease(task_class, max_wait_ms, gpu, input_ms, hold_ms)


def hint(input_ms=0, hold_ms=0, gpu=None):
    """Tells how long a task will be. Returns True if that raises the water lines."""
    result = _lib().gpuarb_hint(_text(gpu), _Hint(input_ms, hold_ms))
    if result < 0:
        raise _error(result)
    return bool(result)


def status(gpu=None):
    """Returns the GPU's admission state as a dictionary; if a value is None, it is not known."""
    s = _Status()
    result = _lib().gpuarb_status(_text(gpu), s)
    if result < 0:
        raise _error(result)
    return {"gpu_admission_state": STATES[1 if s.state else 0],
            "gpu_usage": None if s.usage < 0 else s.usage / 100,
            "gpu_usage_cache_age_ms": None if s.usage_age_ms < 0 else s.usage_age_ms,
            "gpu_queue_len": s.queue_len,
            "high_water": s.high_water, "low_water": s.low_water, "boost_left_ms": s.boost_left_ms,
            "leases": s.leases, "own_leases": s.own_leases,
            "core_limit": s.core_limit, "quota": s.quota / 100, "reason": s.reason, "window_ns": s.window_ns,
            "window_used_ns": s.window_used_ns, "debt_ns": s.debt_ns, "total_ns": s.total_ns,
            "throttled_ns": s.throttled_ns, "mem_used": s.mem_used, "mem_limit": s.mem_limit}
