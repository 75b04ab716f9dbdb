"""The parts of check-gpu. Each gives PASS, FAIL or SKIP, a figure and notes. What is true is never taken from gpuarb."""
import os
import re
import subprocess
import time

import names
from lab import Failed

SOURCE = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))

# How far a limit may be off, in percent of the GPU's time, alone and beside an unlimited program. The simulated GPU
# stays below 2.4, also on a busy machine; the clocks of NVIDIA's GPUs wander by a percent under load.
ALONE_POINTS, BESIDE_POINTS = 1.5, 3.0
# A program that waits for each kernel depends on how soon the machine wakes it. It must get at least this part of its
# limit.
WAITING_RATIO = 0.85
# How far bills may be from NVML's figure, which is an average of whole percents over a period of NVML's own.
CONSERVATION_POINTS = 5.0
# How far shares by context switches may be off: a switch belongs to no context, and switches cost up to a percent at
# slices of 2 ms.
SWITCH_POINTS = 5.0
# Launches a second with the preload, as a part of those without it.
OVERHEAD_RATIO = 0.85
# How far gpuarb's books and NVML's may differ in the size of an allocation: drivers round to 2 MiB, more than once.
MEMORY_BYTES = 8 << 20
# By how much two calibrations of the same work may differ. If they differ by more, nothing else can be measured.
STEADY_RATIO = 0.04
# If a driver's events or callbacks are later than this, in us, gpuarb was not built for it.
EVENT_US, CALLBACK_US = 1000, 5000


def result(bad, figure, notes=(), **data):
    return {"status": "FAIL" if bad else "PASS", "figure": figure, "notes": list(bad) + list(notes), "data": data}


def skip(why):
    return {"status": "SKIP", "figure": why, "notes": [], "data": {}}


def read(command):
    try:
        return subprocess.run(command, capture_output=True, text=True, timeout=20, check=False).stdout.strip()
    except (OSError, subprocess.TimeoutExpired):
        return ""


def mps():
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open("/proc/%s/comm" % pid, encoding="utf-8") as f:
                if f.read().startswith("nvidia-cuda-mps"):
                    return True
        except OSError:
            pass
    return False


def machine(lab):
    bad, nvml = [], lab.nvml
    others = [p for p in nvml.processes() if p != os.getpid()]
    about = {"gpu": nvml.name(), "uuid": lab.uuid, "driver": nvml.driver(), "mig": nvml.mig(), "mps": mps(),
             "sm_clock_mhz": nvml.number("nvmlDeviceGetClockInfo", 1), "slice": read(["nvidia-smi", "compute-policy", "-l"]),
             "cpus": os.cpu_count(), "kernel": os.uname().release, "memory_used": nvml.memory_used()}
    if others:
        bad.append("others use this GPU (pid %s): nothing can be measured beside them" % ", ".join(map(str, others)))
        return dict(result(bad, "in use"), refuse=True)
    first = dict(lab.calibrate())
    lab.counts = {}
    second = lab.calibrate()
    # The counts were found anew, so the time of one count is what must agree.
    drift = max(abs(first[u]["alone_ns"] / first[u]["count"] * second[u]["count"] / second[u]["alone_ns"] - 1)
                for u in (200, 1000))
    if drift > STEADY_RATIO:
        bad.append("the same work takes %.1f percent longer or shorter from one second to the next: fix the clocks "
                   "(nvidia-smi -lgc)" % (100 * drift))
    notes = ["%s, driver %s, MIG %s, MPS %s, %s CPUs, Linux %s" % (
        about["gpu"], about["driver"], {True: "on", False: "off", None: "unknown"}[about["mig"]],
        "on: limits are shares of time in the set, not of SMs" if about["mps"] else "off", about["cpus"], about["kernel"])]
    return result(bad, "fixed work repeats within %.2f percent" % (100 * drift), notes, about=about,
                  calibration=list(second.values()))


def facts(lab):
    bad, notes, said = [], [], {}
    spinner = None
    process = lab.start(["facts", "beside=1"])
    try:
        while "ready" not in said:
            fact = lab.line(process)
            said[fact["fact"]] = fact
        spinner = lab.start(["safety", "case=forever", "count=%d" % lab.calibrate()[1000]["count"]])
        lab.line(spinner)
        time.sleep(0.3)
        lab.go_on(process)
        for fact in lab.finish(process):
            said[fact["fact"]] = fact
    finally:
        for p in (process, spinner):
            if p and p.poll() is None:
                lab.kill(p)
    same = said["exported"]
    if same["same"] != same["asked"]:
        bad.append("cuGetProcAddress gives %d of %d functions that are not the exported ones: calls are told apart by the "
                   "published rule alone" % (same["asked"] - same["same"], same["asked"]))
    if "driver" in said:
        unknown = {n for n in names.exported(said["driver"]["path"]) if n.startswith("cu") and n[2:3].isupper()} - names.known(SOURCE)
        work = sorted(n for n in unknown if names.WORK.search(n))
        if work:
            bad.append("%d functions that look like work are in no table: %s" % (len(work), " ".join(work[:6])))
        if unknown:
            notes.append("%d exported names are in no table: %s" % (len(unknown), " ".join(sorted(unknown)[:8])))
    for name, most in (("event alone", EVENT_US), ("callback", CALLBACK_US)):
        if said[name]["us"] > most:
            bad.append("%s: %.0f us" % (name, said[name]["us"]))
    figure = ", ".join("%s %.1f us" % (n, said[n]["us"]) for n in
                       ("launch", "record", "query", "event alone", "event beside a spinner", "callback", "first launch"))
    return result(bad, figure, notes, said=said)


def accuracy(lab):
    counts, bad, rows = lab.calibrate(), [], []
    seconds, warm = (1.5, 0.7) if lab.short else (3, 1)
    cases = [(us, limit, beside, sync) for us in (20, 200, 1000) for limit in (10, 25, 50)
             for beside in (False, True) for sync in (0, 1)]
    if lab.short:
        cases = [(200, 25, False, 0), (1000, 25, True, 0), (200, 25, False, 1)]
    free = {}
    for us, limit, beside, sync in cases:
        work = ["run", "count=%d" % counts[us]["count"], "batch=%d" % (1 if sync else max(1, 2000 // us)), "sync=%d" % sync]
        time_ = ["seconds=%g" % seconds, "warm=%g" % warm]
        if sync and us not in free:
            free[us] = lab.attained(lab.run(work + ["seconds=0.7", "warm=0.2"])[0], us)
        other = None
        if beside:
            other = lab.start(["run", "count=%d" % counts[200]["count"], "batch=10", "seconds=%g" % (seconds + 1), time_[1]],
                              preload=True, account="unlimited")
        account = "a%d-%d-%d-%d" % (us, limit, beside, sync)
        got = lab.attained(lab.run(work + time_, preload=True, core=limit, account=account)[0], us)
        if other:
            lab.finish(other)
        most = BESIDE_POINTS if beside else ALONE_POINTS
        # A limit is a cap. A program that waits for each kernel uses less by itself, and even less beside others.
        least = limit if not sync else WAITING_RATIO * min(limit, free[us]) if not beside else 0
        error = max(got - limit, least - got, 0) if not (sync and beside) else max(got - limit, 0)
        rows.append({"us": us, "limit": limit, "beside": beside, "waits": bool(sync), "attained": round(got, 2)})
        if error > most:
            bad.append("limit %d, kernels of %d us, %s, %s: attained %.2f" % (
                limit, us, "beside an unlimited program" if beside else "alone", "waiting" if sync else "queued", got))
    worst = max(abs(r["attained"] - r["limit"]) for r in rows if not r["waits"])
    return result(bad, "%d cases; queued work is off by %.2f points at most" % (len(rows), worst), rows=rows)


def integral(lab, seconds):
    """Samples NVML's utilisation for some seconds."""
    total, last, end = 0.0, time.monotonic(), time.monotonic() + seconds
    while last < end:
        time.sleep(0.04)
        now, used = time.monotonic(), lab.nvml.utilisation()
        if used is None:
            return None
        total += used / 100.0 * (now - last)
        last = now
    return total


def conservation(lab):
    counts, bad, rows = lab.calibrate(), [], []
    seconds = 2.5 if lab.short else 8
    for name, limits in (("30 and 20", (30, 20)), ("unlimited", (None,)), ("10 beside unlimited", (10, None))):
        if lab.short and name != "30 and 20":
            continue
        # They run until they are killed, so that they are measured while they run, however slow this program is.
        others = [lab.start(["run", "count=%d" % counts[200]["count"], "batch=10", "warm=0", "seconds=600"],
                            preload=True, core=limit, account="c%s%d" % (limit or "", i)) for i, limit in enumerate(limits)]
        try:
            lab.running("c%s%d" % (limit or "", i) for i, limit in enumerate(limits))
            before, begin = lab.top()["billed_ns"], time.monotonic()
            nvml = integral(lab, seconds)
            after, elapsed = lab.top()["billed_ns"], time.monotonic() - begin
        finally:
            for o in others:
                lab.kill(o)
        if nvml is None:
            return skip("NVML gives no utilisation")
        billed, seen = 100 * (after - before) / 1e9 / elapsed, 100 * nvml / elapsed
        rows.append({"case": name, "billed": round(billed, 2), "nvml": round(seen, 2)})
        if abs(billed - seen) > CONSERVATION_POINTS:
            bad.append("%s: billed %.1f percent of the time, NVML saw %.1f" % (name, billed, seen))
    return result(bad, "; ".join("%(case)s: billed %(billed).1f, NVML %(nvml).1f" % r for r in rows), rows=rows)


def find_cupti(lab):
    """Finds the library and the number of its kind of record; otherwise gives None and the reason."""
    if lab.sim:
        places = [(os.path.join(lab.build, "test", "gpu", "cupti"), os.path.join(SOURCE, "test", "gpu", "cupti"))]
    else:
        homes = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
        places = [(os.path.join(h, "extras", "CUPTI", "lib64"), os.path.join(h, "extras", "CUPTI", "include"))
                  for h in homes if h]
    why = "no CUPTI is installed (%s)" % ", ".join(p[0] for p in places)
    for library, include in places:
        library, header = os.path.join(library, "libcupti.so"), os.path.join(include, "cupti_activity.h")
        if not os.path.exists(library) or not os.path.exists(header):
            continue
        with open(header, encoding="utf-8", errors="replace") as f:
            kind = re.search(r"CUPTI_ACTIVITY_KIND_COMPUTE_ENGINE_CTX_SWITCH\s*=\s*(\d+)", f.read())
        if kind:
            return library, int(kind.group(1))
        why = "the CUPTI in %s knows no context switches: a newer one is needed" % include
    return None, why


def switches(lab):
    """Runs two programs that fill the GPU together, and measures by context switches how long each has it."""
    library, kind = find_cupti(lab)
    if not library:
        return skip(kind)
    counts, limits = lab.calibrate(), {"s70": 70, "s30": 30}
    programs = [lab.start(["run", "count=%d" % counts[200]["count"], "batch=10", "warm=0", "seconds=600"],
                          preload=True, core=core, account=name) for name, core in limits.items()]
    try:
        lab.running(limits)
        said = lab.run(["switches", "library=" + library, "kind=%d" % kind, "seconds=%g" % (2.5 if lab.short else 6)])
    finally:
        for p in programs:
            lab.kill(p)
    if "error" in said[0]:
        return skip("CUPTI does not give context switches here (error %d): MIG, a virtual GPU, or no permission" % said[0]["error"])
    had = {}
    for s in said[1:]:
        had[s["context"]] = had.get(s["context"], 0) + s["ns"]
    shares = sorted((100.0 * ns / max(sum(had.values()), 1) for ns in had.values()), reverse=True)[:2]
    if len(shares) < 2:
        return skip("CUPTI saw %d contexts, in %d records: those of other programs are not shown" % (len(shares), said[0]["records"]))
    bad = ["programs with limits of 70 and 30 had the GPU for %.1f and %.1f percent of the time" % tuple(shares)] \
        if max(abs(shares[0] - 70), abs(shares[1] - 30)) > SWITCH_POINTS else []
    return result(bad, "limits of 70 and 30: %.1f and %.1f percent, by %d context switches" % (*shares, said[0]["records"]),
                  shares=shares, records=said[0]["records"])


def overhead(lab):
    seconds = "seconds=%g" % (0.4 if lab.short else 2)
    best, mean = {}, {}
    for _ in range(2):
        for how, options in (("without", {}), ("with", {"preload": True}), ("limited", {"preload": True, "core": 50})):
            for said in lab.run(["rate", seconds], **options):
                key = (how, said["what"])
                best[key] = max(said["best"], best.get(key, 0))
                mean[key] = max(said["mean"], mean.get(key, 0))
    kinds = ("launches", "graphs")
    bad = ["%s: %.0f a second with the preload, %.0f without" % (k, best["with", k], best["without", k])
           for k in kinds if best["with", k] < OVERHEAD_RATIO * best["without", k]]
    return result(bad, "; ".join("%s: %.0f/s without, %.3f of it with, %.3f limited to 50" % (
        k, best["without", k], best["with", k] / best["without", k], mean["limited", k] / mean["without", k])
        for k in kinds), best={"%s %s" % k: v for k, v in best.items()})


def memory(lab):
    bad, rows = [], []
    for kind in ("plain", "pitched", "array", "ordered", "virtual", "graph"):
        process = lab.start(["memory", "kind=" + kind, "mib=256"], preload=True, account="m-" + kind)
        try:
            lab.line(process)
            device, counted = lab.nvml.memory_used(), lab.account("m-" + kind)["memory"]["used_bytes"]
            lab.go_on(process)
            lab.line(process)
            device = lab.nvml.memory_used() - device
            counted = lab.account("m-" + kind)["memory"]["used_bytes"] - counted
            lab.go_on(process)
            lab.line(process)
            lab.go_on(process)
            lab.finish(process)
        except Failed as why:
            bad.append("%s: %s" % (kind, why))
            continue
        finally:
            if process.poll() is None:
                lab.kill(process)
        rows.append({"kind": kind, "device": device, "counted": counted})
        if abs(device - counted) > MEMORY_BYTES:
            bad.append("%s: gpuarb counts %d MiB, NVML says %d MiB" % (kind, counted >> 20, device >> 20))
    worst = max((abs(r["device"] - r["counted"]) for r in rows), default=0)
    return result(bad, "%d kinds, off by %.1f MiB at most" % (len(rows), worst / (1 << 20)), rows=rows)


def safety(lab):
    bad, done = [], []
    count = "count=%d" % lab.calibrate()[1000]["count"]

    def case(name, *arguments, **how):
        try:
            said = lab.run(["safety", "case=" + name] + list(arguments), **how)
            done.append(name)
            return said
        except Failed as why:
            bad.append("%s: %s" % (name, why))
            return None

    case("capture", preload=True, core=40)
    case("fork", preload=True, core=40)
    begin = time.monotonic()
    case("exit", count, preload=True, core=50)
    if time.monotonic() - begin > 20:
        bad.append("a program that ends with work queued took %.0f s" % (time.monotonic() - begin))
    same = [case("fault", preload=p) for p in (False, True)]
    if same[0] != same[1]:
        bad.append("a sticky error is %s without the preload, %s with it" % (same[0], same[1]))
    victim = lab.start(["safety", "case=forever", count], preload=True, core=50, account="victim")
    lab.line(victim)
    time.sleep(0.3)
    lab.kill(victim)
    lab.run(["run", count, "seconds=0.5", "warm=0.1"], preload=True, core=50, account="heir")
    left = lab.account("victim")["processes"]
    if left:
        bad.append("a program that was killed is still there after another one has run")
    done.append("kill")
    return result(bad, "%s: as without the preload" % ", ".join(dict.fromkeys(done)) if not bad else "%d of 5 wrong" % len(bad))


TORCH = """
import hashlib, torch
torch.manual_seed(1); torch.use_deterministic_algorithms(True)
m = torch.nn.Sequential(torch.nn.Linear(256, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)).cuda()
m = COMPILE(m)
x = torch.randn(64, 256, device="cuda"); o = torch.optim.SGD(m.parameters(), 0.1)
for _ in range(50):
    o.zero_grad(); m(x).square().mean().backward(); o.step()
print(hashlib.sha256(b"".join(p.detach().cpu().numpy().tobytes() for p in m.parameters())).hexdigest())
"""
JAX = """
import hashlib, jax, jax.numpy as n
f = jax.jit(lambda a: n.tanh(a @ a.T).sum(0))
a = jax.random.normal(jax.random.PRNGKey(1), (512, 512))
for _ in range(20): a = a + f(a)[None, :] * 1e-3
print(jax.devices()[0].platform, hashlib.sha256(bytes(memoryview(jax.device_get(a)))).hexdigest())
"""
CUPY = """
import hashlib, cupy
a = cupy.arange(1 << 20, dtype=cupy.float32); b = cupy.sqrt(a).reshape(1024, 1024)
print(hashlib.sha256(cupy.asnumpy(b * 2 + b.T).tobytes()).hexdigest())
"""


def installed(lab):
    """Lists the well-known programs that are installed: name, command, environment."""
    import importlib.util
    import shutil
    import sys
    for name, module, code in (("PyTorch eager", "torch", TORCH.replace("COMPILE(m)", "m")),
                               ("PyTorch compiled", "torch", TORCH.replace("COMPILE(m)", "torch.compile(m)")),
                               ("JAX", "jax", JAX), ("CuPy", "cupy", CUPY)):
        if not lab.sim and importlib.util.find_spec(module):
            yield name, [sys.executable, "-c", code]
    if shutil.which("ffmpeg"):
        yield "ffmpeg", ["ffmpeg", "-v", "error", "-init_hw_device", "cuda=cu:0", "-filter_hw_device", "cu", "-f", "lavfi", "-i",
                         "testsrc2=duration=2:size=640x360:rate=30", "-vf", "format=nv12,hwupload_cuda,hwdownload,format=nv12",
                         "-f", "md5", "-"]
    if shutil.which("llama-cli") and os.environ.get("LLAMA_MODEL"):
        yield "llama.cpp", ["llama-cli", "-m", os.environ["LLAMA_MODEL"], "-ngl", "99", "--temp", "0", "--seed", "1", "-n", "32",
                            "-p", "One two three", "-no-cnv", "--no-perf"]
    if shutil.which("all_reduce_perf"):
        yield "nccl-tests", ["sh", "-c", "all_reduce_perf -b 1M -e 8M -f 2 -g 1 -c 1 | grep -o 'Out of bounds values.*'"]


def programs(lab):
    bad, good = [], []
    for name, command in installed(lab):
        outputs = []
        for preload in (False, True):
            env = lab.environment(preload, 80 if preload else None, "program")
            try:
                ran = subprocess.run(command, capture_output=True, text=True, env=env, timeout=90, check=False)
                outputs.append((ran.returncode, ran.stdout))
            except subprocess.TimeoutExpired:
                outputs.append(("did not end in 90 s", ""))
            lab.note(program=name, preload=preload, output=outputs[-1])
        if outputs[0][0]:
            good.append("%s does not run here (%s)" % (name, outputs[0][0]))
        elif outputs[0] != outputs[1]:
            bad.append("%s: another result with the preload (%s)" % (name, outputs[1][0]))
        else:
            good.append(name)
    if not bad and not good:
        return skip("none of PyTorch, JAX, CuPy, ffmpeg, llama.cpp, nccl-tests is installed")
    return result(bad, "same output with and without: %s" % (", ".join(good) or "none"))


# The name and the function of each part, and the seconds that it may take.
ALL = (("machine", machine, 90), ("facts", facts, 60), ("accuracy", accuracy, 300), ("conservation", conservation, 90),
       ("switches", switches, 60), ("overhead", overhead, 60), ("memory", memory, 60), ("safety", safety, 90), ("programs", programs, 240))
# The parts that judge by measured time.
TIMED = ("machine", "facts", "accuracy", "conservation", "switches", "overhead")
