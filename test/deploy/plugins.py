#!/usr/bin/env python3
"""The policies by the API server's own admission plugins (plugins/main.go): the pods of policy.py and workloads.yaml, the
types of the expressions, and every manifest by the strict decoder. Usage: plugins.py JUDGE DIRECTORY-OF-THE-MANIFESTS"""
import copy
import json
import subprocess
import sys

import yaml

import policy

judge, directory = sys.argv[1:]
files = ["%s/policy/%s.yaml" % (directory, name) for name in ("mutating", "validating")]
bad, cases = [], []


def ask(what, question, right):
    """right(answer) says whether that is right."""
    cases.append((what, question, right))


def said(sentence):
    return lambda a: sentence in a["error"] if sentence else not a["error"]


def same(wanted):
    """Whether the pod is that one. Empty fields that the server adds do not count."""
    wanted = copy.deepcopy(wanted)

    def right(a):
        got = a["pod"]
        got["metadata"].pop("namespace")
        got.pop("status", None)
        for c in got["spec"]["containers"] + got["spec"].get("initContainers", []) + wanted["spec"]["containers"] + wanted["spec"].get("initContainers", []):
            if not c.get("resources"):
                c.pop("resources", None)
        return not a["error"] and got == wanted
    return right


for what, pod, sentence in policy.VALIDATED:
    for update in (False, True):
        ask(what, {"validate": True, "tenant": True, "update": update, "pod": pod}, said(sentence))
    ask(what + ", in a namespace without the label", {"validate": True, "pod": pod}, said(None))
for what, pod, wanted in policy.MUTATED + policy.workloads():
    ask(what, {"mutate": True, "pod": pod}, same(policy.after(pod, wanted)))
    ask(what + ", of a tenant", {"mutate": True, "validate": True, "tenant": True, "pod": pod}, same(policy.after(pod, wanted)))
for file in files:
    text = open(file).read()
    ask("the types of " + file, {"check": text}, said(None))
    ask("a field that pods have not", {"check": text.replace("c.resources.limits", "c.resources.limit")}, said("undefined field 'limit'"))
    ask("a number and a string", {"check": text.replace("'gpuarb.dev/share' in", "5 in")}, said("no matching overload"))
for path, document, patch in policy.manifests(directory):
    ask(path, {"decode": yaml.safe_dump(document)}, said(None))
    ask(path + ", spoilt", {"decode": yaml.safe_dump({**document, "noSuchField": 1})}, said("unknown field \"noSuchField\""))
done = subprocess.run([judge, *files], input="\n".join(json.dumps(q) for _, q, _ in cases), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=300)
answers = done.stdout.splitlines()
if done.returncode or len(answers) != len(cases):
    sys.exit("policies: %d answers to %d questions: %s" % (len(answers), len(cases), done.stderr[-500:]))
for (what, _, right), answer in zip(cases, answers):
    if not right(json.loads(answer)):
        bad.append(what)
        print("policies: %s: %s" % (what, answer), file=sys.stderr)
if bad:
    sys.exit(1)
print("policies: %d cases by the admission plugins and the decoder of Kubernetes are as they should be" % len(cases))
