"""Names of functions: those that a driver exports, and those in gpuarb's tables."""
import glob
import os
import re
import struct

# A function with such a name does something that gpuarb has to see; other functions ask or describe.
WORK = re.compile(r"Launch|Memcpy|Memset|Alloc|Free|Prefetch|Synchronize|MemPool|MemCreate|CtxCreate|Capture")


def exported(path):
    """Returns the functions that a 64-bit ELF library exports."""
    with open(path, "rb") as f:
        data = f.read()
    shoff, = struct.unpack_from("<Q", data, 40)
    shentsize, shnum = struct.unpack_from("<HH", data, 58)
    sections = [struct.unpack_from("<IIQQQQIIQQ", data, shoff + i * shentsize) for i in range(shnum)]
    found = set()
    for kind in sections:
        if kind[1] != 11:  # SHT_DYNSYM
            continue
        strings = sections[kind[6]]
        for at in range(kind[4], kind[4] + kind[5], 24):
            name, info, _, index, _, _ = struct.unpack_from("<IBBHQQ", data, at)
            if index and info & 15 == 2:
                start = strings[4] + name
                found.add(data[start:data.index(b"\0", start)].decode())
    return found


def known(source):
    found = set()
    for path in glob.glob(os.path.join(source, "include", "cuda_abi", "*.def")):
        with open(path, encoding="utf-8") as f:
            found.update(re.findall(r"^CU_CALL\((\w+)", f.read(), re.M))
    return found

