"""What check-gpu works with: one GPU, a directory of its own, programs with and without the preload, NVML, gpuarb-top."""
import ctypes
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time


class Nvml:
    """NVML, read by this process, which runs without the preload."""

    class _Utilisation(ctypes.Structure):
        _fields_ = [("gpu", ctypes.c_uint), ("memory", ctypes.c_uint)]

    class _Memory(ctypes.Structure):
        _fields_ = [("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong)]

    class _Process(ctypes.Structure):
        _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("gi", ctypes.c_uint), ("ci", ctypes.c_uint)]

    def __init__(self, library, index):
        self.lib = ctypes.CDLL(library)
        if self.lib.nvmlInit_v2():
            raise OSError("NVML does not start")
        self.device = ctypes.c_void_p()
        if self.lib.nvmlDeviceGetHandleByIndex_v2(index, ctypes.byref(self.device)):
            raise OSError("NVML knows no GPU %d" % index)

    def text(self, name, *device):
        buffer = ctypes.create_string_buffer(128)
        call = getattr(self.lib, name)
        result = call(*device, buffer, 128)
        return buffer.value.decode(errors="replace") if not result else None

    def uuid(self):
        return self.text("nvmlDeviceGetUUID", self.device)

    def name(self):
        return self.text("nvmlDeviceGetName", self.device)

    def driver(self):
        return self.text("nvmlSystemGetDriverVersion")

    def number(self, name, *before):
        value = ctypes.c_uint()
        result = getattr(self.lib, name)(self.device, *before, ctypes.byref(value))
        return value.value if not result else None

    def mig(self):
        now, then = ctypes.c_uint(), ctypes.c_uint()
        result = self.lib.nvmlDeviceGetMigMode(self.device, ctypes.byref(now), ctypes.byref(then))
        return None if result else bool(now.value)

    def utilisation(self):
        value = self._Utilisation()
        return None if self.lib.nvmlDeviceGetUtilizationRates(self.device, ctypes.byref(value)) else value.gpu

    def memory_used(self):
        value = self._Memory()
        return None if self.lib.nvmlDeviceGetMemoryInfo(self.device, ctypes.byref(value)) else value.used

    def processes(self):
        found = []
        for kind in ("Compute", "Graphics"):
            call = getattr(self.lib, "nvmlDeviceGet%sRunningProcesses_v3" % kind, None)
            if call is None:
                continue
            count = ctypes.c_uint(64)
            list_ = (self._Process * 64)()
            if not call(self.device, ctypes.byref(count), list_):
                found += [list_[i].pid for i in range(count.value)]
        return sorted(set(found))


class Failed(Exception):
    """A program that check-gpu started has failed."""


class Lab:
    def __init__(self, build, gpu, driver, short):
        self.build = os.path.abspath(build)
        self.sim = gpu is None
        self.short = short
        self.preload = os.path.join(self.build, "libgpuarb-preload.so")
        self.work = os.path.join(self.build, "test", "gpu", "gpu_work")
        self.dir = tempfile.mkdtemp(prefix="gpuarb-check-gpu-", dir="/dev/shm")
        self.trace = []
        # Only the children of this program see what is set here. No setting of gpuarb comes from the caller.
        for name in list(os.environ):
            if name.startswith(("GPUARB_", "GPUSIM_")) or name == "LD_PRELOAD":
                del os.environ[name]
        os.environ["GPUARB_DIR"] = os.path.join(self.dir, "gpuarb")
        os.makedirs(os.environ["GPUARB_DIR"], exist_ok=True)
        library = "libnvidia-ml.so.1"
        if self.sim:
            os.environ["GPUSIM_DIR"] = os.path.join(self.dir, "sim")
            os.environ["GPUSIM_KERNELS"] = "nothing=1"
            os.environ["LD_LIBRARY_PATH"] = os.path.join(self.build, "sim")
            library = os.path.join(self.build, "sim", library)
        if driver:
            os.environ["LD_LIBRARY_PATH"] = driver + ":" + os.environ.get("LD_LIBRARY_PATH", "")
        self.nvml = Nvml(library, gpu or 0)
        self.uuid = self.nvml.uuid()
        os.environ["CUDA_VISIBLE_DEVICES"] = self.uuid
        self.counts = {}

    def close(self):
        shutil.rmtree(self.dir, ignore_errors=True)

    def environment(self, preload, core=None, account=None):
        env = dict(os.environ)
        if preload:
            env["LD_PRELOAD"] = self.preload
            env["GPUARB_ACCOUNT"] = account or "check"
            if core:
                env["GPUARB_CORE_LIMIT"] = str(core)
        return env

    def note(self, **what):
        self.trace.append(dict(what, at=round(time.monotonic(), 4)))

    def start(self, arguments, preload=False, core=None, account=None):
        self.note(start=arguments, preload=preload, core=core, account=account)
        return subprocess.Popen([self.work] + [str(a) for a in arguments], stdin=subprocess.PIPE,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                                env=self.environment(preload, core, account))

    def finish(self, process, may_fail=False):
        """Waits for a program's end and returns its JSON objects."""
        out, err = process.communicate()
        self.note(ended=process.returncode, out=out, err=err)
        if process.returncode and not may_fail:
            raise Failed("gpu_work ended with %d: %s" % (process.returncode, (err or out).strip()[-400:]))
        return [json.loads(line) for line in out.splitlines() if line.startswith("{")]

    def run(self, arguments, **how):
        return self.finish(self.start(arguments, **how))

    def line(self, process):
        """Returns the next JSON object of a program."""
        text = process.stdout.readline()
        if not text:
            raise Failed("gpu_work ended: %s" % process.stderr.read().strip()[-400:])
        self.note(said=text.strip())
        return json.loads(text)

    def go_on(self, process):
        process.stdin.write("go\n")
        process.stdin.flush()

    def kill(self, process):
        process.send_signal(signal.SIGKILL)
        process.communicate()

    def top(self):
        """Returns what gpuarb-top says about this GPU."""
        out = subprocess.run([os.path.join(self.build, "gpuarb-top"), "--json", "--once"], capture_output=True,
                             text=True, check=False).stdout
        self.note(top=out)
        for gpu in json.loads(out)["gpus"] if out.strip() else []:
            if gpu["uuid"] == self.uuid:
                return gpu
        return {"accounts": [], "billed_ns": 0, "busy_ns": 0, "processes": 0}

    def account(self, name):
        for account in self.top()["accounts"]:
            if account["name"] == name:
                return account
        return {"used_ns": 0, "memory": {"used_bytes": 0}, "processes": []}

    def running(self, names):
        """Waits until each of these accounts has been billed, and a second longer for its limit to settle."""
        for name in names:
            end = time.monotonic() + 30
            while not self.account(name)["used_ns"]:
                if time.monotonic() > end:
                    raise Failed("%s was not billed for anything in 30 s" % name)
                time.sleep(0.05)
        time.sleep(1)

    def calibrate(self):
        """Finds, without the preload, the count for each length and how long it takes alone."""
        if not self.counts:
            for c in self.run(["calibrate", "us=20,200,1000"]):
                self.counts[c["us"]] = c
        return self.counts

    def attained(self, said, us):
        """Gives the percent of the GPU's time for the units of fixed work that were done, by the time that a unit takes alone."""
        return 100.0 * said["units"] * self.counts[us]["alone_ns"] / max(said["elapsed_ns"], 1)
