#!/usr/bin/python3
"""Flags with which podman runs the container `main` of a pod, as the kubelet would: variables and mounts.

Usage: pod-flags.py POD.yaml UID PATH=WHERE...    PATH: of the node or, for the downward API's volume, its name
"""
import sys

import yaml

pod = yaml.safe_load(open(sys.argv[1]))["spec"]
uid = sys.argv[2]
where = dict(a.split("=", 1) for a in sys.argv[3:])
main = [c for c in pod["containers"] if c["name"] == "main"][0]
volumes = {v["name"]: v for v in pod["volumes"]}
known = {}
for e in main["env"]:
    value = e.get("value", "")
    if "valueFrom" in e:
        assert e["valueFrom"]["fieldRef"]["fieldPath"] == "metadata.uid", e
        value = uid
    # A variable can refer only to those before it, as in Kubernetes.
    for name, other in known.items():
        value = value.replace("$(%s)" % name, other)
    known[e["name"]] = value
    print("-e %s=%s" % (e["name"], value))
for m in main["volumeMounts"]:
    volume = volumes[m["name"]]
    source = where[volume["hostPath"]["path"] if "hostPath" in volume else m["name"]]
    print("-v %s:%s:%s" % (source, m["mountPath"], "ro" if m.get("readOnly") else "rw"))
