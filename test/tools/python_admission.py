"""The Python module over the C library, on a segment of its own. Usage: python_admission.py BUILD"""

import errno
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import unittest

BUILD = os.path.abspath(sys.argv.pop(1))
HERE = os.path.dirname(os.path.abspath(__file__))
GPU = "GPU-00000000-0000-0000-0000-000000000007"
CONF = """usage_sample_ms = 60000
cache_ttl_ms = 600000
[class asr]
priority = 90
max_wait_ms = 5000
under_pressure = pass
[class nmt]
priority = 80
max_wait_ms = 30
under_pressure = pass
[class repair]
priority = 10
mode = skip
"""

sys.path.insert(0, os.path.join(HERE, "..", "..", "tools", "python"))
os.environ["GPUARB_LIBRARY"] = os.path.join(BUILD, "libgpuarb.so.1")
DIR = tempfile.mkdtemp(prefix="gpuarb-python-", dir="/dev/shm")
os.environ["GPUARB_DIR"] = DIR
os.environ["GPUARB_CONF"] = os.path.join(DIR, "conf")
with open(os.environ["GPUARB_CONF"], "w") as f:
    f.write(CONF)

import gpuarb  # noqa: E402  the environment has to be there first

HOLD = "import gpuarb, sys; l = gpuarb.lease('asr', gpu=%r).acquire(); print('held', flush=True); sys.stdin.read()" % GPU

WAIT = """
import gpuarb
lease = gpuarb.lease('asr', max_wait_ms=3000000, gpu=%r)
try:
    lease.acquire()
except KeyboardInterrupt:
    print('interrupted', lease.held, flush=True)
""" % GPU


def settings(*changes):
    subprocess.run([os.path.join(BUILD, "gpuarb-set"), "--gpu", GPU, *changes], check=True)


class Admission(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        with gpuarb.lease(gpu=GPU):
            pass

    def test_a_lease_is_held_inside_the_block(self):
        with gpuarb.lease("asr", gpu=GPU) as lease:
            self.assertTrue(lease.held)
            self.assertEqual(gpuarb.status(GPU)["own_leases"], 1)
            with gpuarb.lease("nmt"):
                self.assertEqual(gpuarb.status()["own_leases"], 2)
        self.assertFalse(lease.held)
        self.assertEqual(gpuarb.status()["own_leases"], 0)

    def test_a_lease_is_released_when_the_task_fails(self):
        with self.assertRaises(ZeroDivisionError):
            with gpuarb.lease("asr"):
                1 // 0
        self.assertEqual(gpuarb.status()["own_leases"], 0)

    def test_an_unknown_class_is_an_error_with_a_sentence(self):
        with self.assertRaises(gpuarb.Error) as caught:
            gpuarb.lease("nonsense").acquire()
        self.assertEqual(caught.exception.errno, errno.ENOENT)
        self.assertIn("nonsense", str(caught.exception))

    def test_a_gpu_that_is_not_there_is_an_error_and_makes_nothing(self):
        for gpu in "GPU-nope", "nope", "0":
            before = os.listdir(os.path.join(DIR, "state"))
            with self.assertRaises(gpuarb.Error) as caught:
                gpuarb.lease(gpu=gpu).acquire()
            self.assertEqual(caught.exception.errno, errno.ENODEV)
            self.assertIn("there is no GPU '%s': it has no segment" % gpu, str(caught.exception))
            with self.assertRaises(gpuarb.Error):
                gpuarb.hint(input_ms=10000, gpu=gpu)
            self.assertEqual(os.listdir(os.path.join(DIR, "state")), before)

    def test_a_gpu_that_the_driver_does_not_know_is_an_error(self):
        unknown = "GPU-0000000f-0000-0000-0000-000000000000"
        program = "import gpuarb; gpuarb.lease(gpu=%r).acquire()" % unknown
        done = subprocess.run([sys.executable, "-c", program], stderr=subprocess.PIPE, text=True, timeout=60,
                              env=dict(os.environ, LD_LIBRARY_PATH=os.path.join(BUILD, "sim"),
                                       PYTHONPATH=sys.path[0], GPUSIM_DIR=DIR + "/sim"))
        self.assertNotEqual(done.returncode, 0)
        self.assertIn("the driver knows none with this UUID", done.stderr)
        self.assertNotIn(unknown, os.listdir(os.path.join(DIR, "state")))

    def test_a_name_that_is_no_gpu_is_an_error(self):
        with self.assertRaises(gpuarb.Error):
            gpuarb.lease(gpu="../x").acquire()
        with self.assertRaises(gpuarb.Error):
            gpuarb.status("GPU-nowhere")

    def test_the_policy_makes_others_wait_until_the_holder_dies(self):
        holder = self.holder()
        settings("policy=exclusive")
        try:
            with self.assertRaises(gpuarb.Timeout) as caught:
                gpuarb.lease("nmt").acquire()
            self.assertEqual(caught.exception.reason, "QUEUE")
            self.assertGreaterEqual(caught.exception.waited_ms, 30)
            # Killed: the lease is free, without anybody's help.
            holder.kill()
            holder.wait()
            with gpuarb.lease("asr"):
                pass
        finally:
            settings("policy=concurrent")
            holder.kill()
            holder.wait()

    def test_other_threads_run_while_one_waits_and_it_can_be_cancelled(self):
        holder = self.holder()
        settings("policy=exclusive")
        try:
            lease = gpuarb.lease("asr", max_wait_ms=60000)
            failed = []

            def wait():
                try:
                    lease.acquire()
                except gpuarb.Error as e:
                    failed.append(e.errno)

            thread = threading.Thread(target=wait)
            thread.start()
            while gpuarb.status()["gpu_queue_len"] == 0:
                time.sleep(0.001)
            lease.cancel()
            thread.join(30)
            self.assertFalse(thread.is_alive())
            self.assertEqual(failed, [errno.ECANCELED])
        finally:
            settings("policy=concurrent")
            holder.kill()
            holder.wait()

    def test_ctrl_c_ends_a_wait(self):
        holder = self.holder()
        settings("policy=exclusive")
        try:
            waiter = self.start(WAIT)
            while gpuarb.status()["gpu_queue_len"] == 0:
                time.sleep(0.001)
            waiter.send_signal(signal.SIGINT)
            # Much sooner than the minutes that it would wait.
            self.assertEqual(waiter.communicate(timeout=60)[0], b"interrupted False\n")
            self.assertEqual(waiter.returncode, 0)
            self.assertEqual(gpuarb.status()["gpu_queue_len"], 0)
        finally:
            settings("policy=concurrent")
            holder.kill()
            holder.wait()

    def test_many_threads_hold_and_release_also_when_their_tasks_fail(self):
        failed = []

        def work(name):
            for turn in range(200):
                try:
                    with gpuarb.lease(name):
                        if gpuarb.status()["own_leases"] < 1:
                            failed.append("not held")
                        1 // (turn % 2)
                except ZeroDivisionError:
                    pass
                except Exception as e:
                    failed.append(e)

        threads = [threading.Thread(target=work, args=(name,)) for name in ("asr", "nmt", "asr", "nmt")]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
        self.assertEqual(failed, [])
        self.assertEqual(gpuarb.status()["own_leases"], 0)

    def test_a_lease_that_is_dropped_is_released(self):
        lease = gpuarb.lease("asr").acquire()
        with self.assertRaises(RuntimeError):
            lease.acquire()
        self.assertEqual(gpuarb.status()["own_leases"], 1)
        del lease
        self.assertEqual(gpuarb.status()["own_leases"], 0)
        with self.assertRaises(TypeError):
            gpuarb.lease("asr", max_wait_ms="long")

    def test_under_pressure_a_class_that_does_not_wait_is_skipped(self):
        settings("usage_sample_ms=50", "cache_ttl_ms=1000")
        try:
            with gpuarb.lease("asr"):
                # Without NVML the time under a lease is the GPU's.
                while gpuarb.status()["gpu_admission_state"] != "HIGH_PRESSURE":
                    time.sleep(0.01)
                with self.assertRaises(gpuarb.Skip) as caught:
                    gpuarb.lease("repair").acquire()
                self.assertEqual(caught.exception.reason, "GPU_USAGE_HIGH")
            while gpuarb.status()["gpu_admission_state"] != "NORMAL":
                time.sleep(0.01)
            with gpuarb.lease("repair"):
                pass
        finally:
            settings("usage_sample_ms=60000", "cache_ttl_ms=600000")

    def test_a_long_task_raises_the_lines(self):
        self.assertFalse(gpuarb.hint(input_ms=7999))
        self.assertEqual(gpuarb.status()["boost_left_ms"], 0)
        self.assertTrue(gpuarb.hint(input_ms=8000))
        s = gpuarb.status()
        self.assertTrue(0 < s["boost_left_ms"] <= 15000)
        self.assertEqual((s["high_water"], s["low_water"]), (92, 85))

    def test_a_forked_child_has_no_lease(self):
        with gpuarb.lease("asr") as lease:
            pid = os.fork()
            if pid == 0:
                status = 1
                try:
                    lease.release()
                    own = gpuarb.status()["own_leases"]
                    with gpuarb.lease("asr"):
                        status = 0 if own == 0 and gpuarb.status()["own_leases"] == 1 else 2
                finally:
                    os._exit(status)
            self.assertEqual(os.waitpid(pid, 0)[1], 0)
            self.assertEqual(gpuarb.status()["own_leases"], 1, "the child's release was not the parent's")

    def start(self, program):
        # Python leaves an interrupt that is ignored ignored: in a job of a shell without job control it is.
        def heed():
            signal.signal(signal.SIGINT, signal.SIG_DFL)

        env = dict(os.environ, PYTHONPATH=os.path.join(HERE, "..", "..", "tools", "python"))
        child = subprocess.Popen(
            [sys.executable, "-c", program], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, preexec_fn=heed)
        self.addCleanup(child.stdin.close)
        self.addCleanup(child.stdout.close)
        self.addCleanup(child.kill)
        return child

    def holder(self):
        holder = self.start(HOLD)
        self.assertEqual(holder.stdout.readline(), b"held\n")
        return holder


if __name__ == "__main__":
    signal.alarm(120)
    try:
        unittest.main()
    finally:
        shutil.rmtree(DIR, ignore_errors=True)
