#!/usr/bin/env python3
"""Checks the adapters as files: each is short, has a page, can be parsed, and says so if it was not run.
Usage: adapters.py DIRECTORY"""
import configparser
import os
import re
import runpy
import sys
import tomllib

import yaml

directory = sys.argv[1]
bad = []


def say(sentence):
    print("adapters: " + sentence, file=sys.stderr)
    bad.append(sentence)


NOT_RUN = ["gitlab-runner", "kserve", "nomad", "ollama", "ray"]
RUN = ["celery", "compose", "dask", "jupyterhub", "systemd"]
found = sorted(os.listdir(directory))
if found != sorted(NOT_RUN + RUN):
    say("there are %s" % found)
for name in found:
    page = open("%s/%s/README.md" % (directory, name)).read()
    if page.count("\n") > 10:
        say("the page of %s has %d lines" % (name, page.count("\n")))
    if ("not run" in page.split("\n")[0]) != (name in NOT_RUN):
        say("the page of %s does not say whether it was run" % name)
    for file in os.listdir("%s/%s" % (directory, name)):
        path = "%s/%s/%s" % (directory, name, file)
        text = open(path).read()
        if file != "README.md" and text.count("\n") > 30:
            say("%s has %d lines" % (path, text.count("\n")))
        if file.endswith(".yaml"):
            list(yaml.safe_load_all(text))
        elif file.endswith(".toml"):
            tomllib.loads(text)
        elif file.endswith(".py"):
            compile(text, path, "exec")
        elif file.endswith(".conf"):
            configparser.ConfigParser(strict=False, interpolation=None).read_string(text)
        elif file.endswith(".hcl") and text.count("{") != text.count("}"):
            say("%s: braces" % path)
share = runpy.run_path(directory + "/ray/gpuarb_ray.py")["share"]
got = share(0.3, "4Gi", "t")
if got["num_gpus"] != 0.3 or got["runtime_env"]["env_vars"].get("GPUARB_CORE_LIMIT") != "30" or \
        got["runtime_env"]["env_vars"].get("GPUARB_MEM_LIMIT") != "4Gi" or got["runtime_env"]["env_vars"].get("GPUARB_ACCOUNT") != "ray-t":
    say("ray: %s" % got)
for wrong in (0, 2, -1):
    try:
        share(wrong)
        say("ray takes %s of a GPU" % wrong)
    except ValueError:
        pass
for name, variable in (("nomad/train.nomad.hcl", "GPUARB_CORE_LIMIT"), ("gitlab-runner/config.toml", "GPUARB_CORE_LIMIT"),
                       ("ollama/50-gpuarb.conf", "GPUARB_CORE_LIMIT"), ("kserve/inferenceservice.yaml", "gpuarb.dev/share")):
    if not re.search(variable, open(directory + "/" + name).read()):
        say("%s has no %s" % (name, variable))
if bad:
    sys.exit(1)
print("adapters: %d are short, have a page and can be read" % len(found))
