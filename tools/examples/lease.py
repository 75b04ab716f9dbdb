#!/usr/bin/env python3
"""A task in Python that skips the GPU while another task has it.

usage: lease.py CLASS
"""
import sys
import time

import gpuarb


def main():
    task_class = sys.argv[1] if len(sys.argv) > 1 else None
    try:
        with gpuarb.lease(task_class) as lease:
            time.sleep(0.02)  # what the program would do on the GPU
            print("ran after a wait of %.1f ms" % lease.waited_ms)
    except gpuarb.Skip:
        print("skipped")
        return 3
    except gpuarb.Timeout:
        print("waited in vain")
        return 4
    except gpuarb.Error as error:
        print("lease: %s" % error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
