#!/usr/bin/env python3
"""The admission policies without a cluster that has them: their fields are those of a table of this test, and their
expressions decide as they should on pods. Usage: policy.py DIRECTORY-OF-THE-MANIFESTS"""
import copy
import os
import sys

import yaml

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import cel  # noqa: E402

# Fields of admissionregistration.k8s.io/v1: (required, others). `make check-schemas` compares this with the published
# schemas. What the server's own validation demands beyond its schema counts as required.
RULES = (["resourceRules"], ["namespaceSelector", "objectSelector", "excludeResourceRules", "matchPolicy"])
FIELDS = {
    "ValidatingAdmissionPolicy": (["matchConstraints", "validations"],
                                  ["failurePolicy", "matchConditions", "paramKind", "variables", "auditAnnotations"]),
    "MutatingAdmissionPolicy": (["matchConstraints", "mutations", "reinvocationPolicy"],
                                ["failurePolicy", "matchConditions", "paramKind", "variables"]),
    "ValidatingAdmissionPolicyBinding": (["policyName", "validationActions"], ["matchResources", "paramRef"]),
    "MutatingAdmissionPolicyBinding": (["policyName"], ["matchResources", "paramRef"]),
}
PARTS = {
    "matchConstraints": RULES,
    "resourceRules": (["apiGroups", "apiVersions", "operations", "resources"], ["resourceNames", "scope"]),
    "matchResources": ([], RULES[0] + RULES[1]), "namespaceSelector": ([], ["matchExpressions", "matchLabels"]),
    "matchExpressions": (["key", "operator"], ["values"]),
    "matchConditions": (["name", "expression"], []), "variables": (["name", "expression"], []),
    "validations": (["expression"], ["message", "messageExpression", "reason"]),
    "mutations": (["patchType"], ["applyConfiguration", "jsonPatch"]), "applyConfiguration": (["expression"], []),
}
LISTS = ["resourceRules", "excludeResourceRules", "apiGroups", "apiVersions", "operations", "resources", "resourceNames", "matchConditions",
         "variables", "validations", "auditAnnotations", "mutations", "validationActions", "matchExpressions", "values"]
OBJECTS = ["matchConstraints", "matchResources", "namespaceSelector", "objectSelector", "matchLabels", "paramKind", "paramRef", "applyConfiguration",
           "jsonPatch"]
WORDS = {"operations": ["CREATE", "UPDATE", "DELETE", "CONNECT", "*"], "validationActions": ["Deny", "Warn", "Audit"],
         "operator": ["In", "NotIn", "Exists", "DoesNotExist"], "failurePolicy": ["Fail", "Ignore"], "reinvocationPolicy": ["Never", "IfNeeded"], "patchType": ["ApplyConfiguration", "JSONPatch"]}
bad = []


def say(sentence):
    print("policy: " + sentence, file=sys.stderr)
    bad.append(sentence)


def fields(where, thing, known):
    required, others = known
    for name in required:
        if name not in thing:
            say("%s has no %s" % (where, name))
    for name, value in thing.items():
        if name not in required + others:
            say("%s: the API knows no field %s" % (where, name))
        kind = list if name in LISTS else dict if name in OBJECTS else str
        if not isinstance(value, kind) or (kind is str and (not value or "\n" in value.strip())):
            say("%s: %s is not what the API takes: %r" % (where, name, value))
        for word in value if isinstance(value, list) else [value]:
            if name in WORDS and word not in WORDS[name]:
                say("%s: %s cannot be %s" % (where, name, word))
        for part in value if isinstance(value, list) else [value]:
            if name in PARTS and isinstance(part, dict):
                fields(where + "." + name, part, PARTS[name])


def pod(shares=(), memory=(), annotations=None, volumes=None, runtime="gpuarb", limits=None, before=None):
    containers = [{"name": "c%d" % i, "resources": {"limits": {"gpuarb.dev/share": s}}} for i, s in enumerate(shares)] + [{"name": "side"}]
    for i, m in enumerate(memory):
        containers[i]["resources"]["limits"]["gpuarb.dev/memory-gib"] = m
    made = {"metadata": {"name": "p"}, "spec": {"containers": containers}}
    if limits:
        containers[-1]["resources"] = {"limits": limits}
    if before:
        made["spec"]["initContainers"] = [{"name": "before", "resources": {"limits": before}}]
    if annotations is not None:
        made["metadata"]["annotations"] = annotations
    if volumes is not None:
        made["spec"]["volumes"] = volumes
    if runtime:
        made["spec"]["runtimeClassName"] = runtime
    return made


def bound(policy, obj):
    env, variables = {"object": obj}, {}
    env["variables"] = variables
    for v in policy["spec"].get("variables", []):
        variables[v["name"]] = cel.evaluate(v["expression"], env)
    return env


def denied(policy, obj):
    """Returns the messages with which a policy denies a pod."""
    env = bound(policy, obj)
    return [v.get("message") or cel.evaluate(v["messageExpression"], env) for v in policy["spec"]["validations"]
            if not cel.evaluate(v["expression"], env)]


def mutated(policy, obj):
    env = bound(policy, obj)
    if not all(cel.evaluate(c["expression"], env) for c in policy["spec"]["matchConditions"]):
        return None
    return cel.evaluate(policy["spec"]["mutations"][0]["applyConfiguration"]["expression"], env)


VALIDATED = [
    ("no GPU", pod(runtime=None), None),
    ("a share", pod(["30"]), None),
    ("two containers, annotated", pod(["30", "5"], annotations={"gpuarb.dev/share": "35"}), None),
    ("other annotations", pod(["30"], annotations={"a": "b"}, volumes=[{"name": "x", "emptyDir": {}}]), None),
    ("a lower limit", pod(["30"], annotations={"gpuarb.dev/core-limit": "20"}), None),
    ("the same limit", pod(["30"], annotations={"gpuarb.dev/core-limit": "30", "gpuarb.dev/core-request": "10"}), None),
    ("memory", pod(["30"], ["4"], annotations={"gpuarb.dev/memory-gib": "4"}), None),
    ("more than one GPU", pod(["1k"], annotations={"gpuarb.dev/share": "1000"}), None),
    ("annotates more than it asks for", pod(["30"], annotations={"gpuarb.dev/share": "90"}), "in their resources: 30"),
    ("annotates and asks for nothing", pod(annotations={"gpuarb.dev/share": "90"}), "in their resources: 0"),
    ("annotates nonsense", pod(["30"], annotations={"gpuarb.dev/share": "x"}), "in their resources: 30"),
    ("more memory", pod(["30"], ["4"], annotations={"gpuarb.dev/memory-gib": "40"}), "memory-gib must be"),
    ("a higher limit", pod(["30"], annotations={"gpuarb.dev/core-limit": "31"}), "the share of the pod: 30"),
    ("a higher request", pod(["30"], annotations={"gpuarb.dev/core-request": "100"}), "the share of the pod: 30"),
    ("a higher limit by another name", pod(["30"], annotations={"nvshare.com/gpu-core-limit": "100"}), "the share of the pod: 30"),
    ("a limit that is none", pod(["30"], annotations={"gpuarb.dev/core-limit": "30%"}), "the share of the pod: 30"),
    ("a directory of the node", pod(["30"], volumes=[{"name": "a", "emptyDir": {}}, {"name": "x", "hostPath": {"path": "/dev/shm"}}]), "hostPath"),
    ("past the runtime", pod(runtime="nvidia"), "runtimeClassName: gpuarb"),
    ("past the runtime by another class of NVIDIA's", pod(runtime="nvidia-cdi"), "runtimeClassName: gpuarb"),
    ("a whole GPU", pod(limits={"nvidia.com/gpu": "1"}, runtime=None), "must ask for gpuarb.dev/share as well"),
    ("a part of one", pod(limits={"nvidia.com/mig-1g.5gb": "1"}, runtime=None), "must ask for gpuarb.dev/share as well"),
    ("a whole GPU before the others", pod(before={"nvidia.com/gpu": "1"}, runtime=None), "must ask for gpuarb.dev/share as well"),
    ("a GPU that the device plugin chooses, with a share", pod(["30"], limits={"nvidia.com/gpu": "1"}), None),
    ("processors and memory", pod(limits={"cpu": "1", "memory": "1Gi"}, before={"cpu": "1"}, runtime=None), None),
    ("a share without the runtime", pod(["30"], runtime=None), "needs runtimeClassName"),
    ("another runtime", pod(["30"], runtime="kata"), "needs runtimeClassName"),
    ("a share before the others, without the runtime", pod(before={"gpuarb.dev/share": "30"}, runtime=None), "needs runtimeClassName"),
    ("more before the others, annotated", pod(["30"], before={"gpuarb.dev/share": "50"}, annotations={"gpuarb.dev/share": "50"}), None),
    ("less before the others, annotated", pod(["30"], before={"gpuarb.dev/share": "20"}, annotations={"gpuarb.dev/share": "50"}), "in their resources: 30"),
]


MUTATED = [
    ("no share", pod(runtime=None), None),
    ("a share", pod(["30"], runtime=None), {"gpuarb.dev/share": "30"}),
    ("memory", pod(["30", "5"], ["4"], runtime=None), {"gpuarb.dev/share": "35", "gpuarb.dev/memory-gib": "4"}),
    ("NVIDIA's runtime", pod(["30"], runtime="nvidia", annotations={"a": "b"}), {"gpuarb.dev/share": "30"}),
    ("annotates more than it asks for", pod(["30"], runtime=None, annotations={"gpuarb.dev/share": "90"}), {"gpuarb.dev/share": "30"}),
]


def manifests(directory):
    """(path, document, whether it is a patch of kustomize); what kustomize alone reads is no object of the API."""
    for folder, _, files in sorted(os.walk(directory)):
        for file in sorted(files):
            path = os.path.join(folder, file)
            for document in yaml.safe_load_all(open(path)) if file.endswith(".yaml") else []:
                if document and not document["apiVersion"].startswith("kustomize.config.k8s.io/"):
                    yield path, document, os.path.basename(folder) == "component"


def workloads():
    """(name, pod, the annotations that it should get): the pods that controllers make of workloads.yaml."""
    made = []
    for d in yaml.safe_load_all(open(os.path.dirname(os.path.abspath(__file__)) + "/workloads.yaml")):
        template = d["spec"]["jobTemplate"] if d["kind"] == "CronJob" else d
        template = d if d["kind"] == "Pod" else template["spec"]["template"]
        one = copy.deepcopy({"metadata": {**template["metadata"], "name": d["metadata"]["name"] + "-28817280-x7k2p"}, "spec": template["spec"]})
        for c in one["spec"]["containers"] + one["spec"].get("initContainers", []):
            for part in c.get("resources", {}).values():  # as the API server keeps quantities
                part.update({k: str(v) for k, v in part.items()})
        labels = one["metadata"]["labels"]
        wanted = {"gpuarb.dev/share": labels["share"]} if "share" in labels else None
        if "memory" in labels:
            wanted["gpuarb.dev/memory-gib"] = labels["memory"]
        made.append(("%s %s" % (d["kind"], d["metadata"]["name"]), one, wanted))
    return made


def after(one, annotations):
    """The pod as it should be afterwards: a class and annotations are added, nothing else is changed."""
    if annotations is None:
        return one
    one = copy.deepcopy(one)
    one["metadata"].setdefault("annotations", {}).update(annotations)
    one["spec"]["runtimeClassName"] = "gpuarb"
    return one


def spoilt(document, spoil):
    """Returns what the check of the fields says about a copy with a defect."""
    copy_of, before = copy.deepcopy(document), len(bad)
    spoil(copy_of["spec"])
    stderr, sys.stderr = sys.stderr, open(os.devnull, "w")
    fields(document["kind"], copy_of["spec"], FIELDS[document["kind"]])
    sys.stderr.close()
    sys.stderr = stderr
    found = len(bad) > before
    del bad[before:]
    return found


DEFECTS = [
    ("a field that there is not", "ValidatingAdmissionPolicy", lambda s: s.update(validation=[])),
    ("no constraints", "ValidatingAdmissionPolicy", lambda s: s.pop("matchConstraints")),
    ("a word", "ValidatingAdmissionPolicy", lambda s: s.update(failurePolicy="Deny")),
    ("an operation", "ValidatingAdmissionPolicy", lambda s: s["matchConstraints"]["resourceRules"][0]["operations"].append("create")),
    ("a list", "ValidatingAdmissionPolicy", lambda s: s.update(validations=s["validations"][0])),
    ("a number", "ValidatingAdmissionPolicy", lambda s: s["validations"][0].update(expression=1)),
    ("an action", "ValidatingAdmissionPolicyBinding", lambda s: s.update(validationActions=["Refuse"])),
    ("a selector", "ValidatingAdmissionPolicyBinding", lambda s: s["matchResources"]["namespaceSelector"].update(labels={})),
    ("no reinvocation", "MutatingAdmissionPolicy", lambda s: s.pop("reinvocationPolicy")),
    ("a patch", "MutatingAdmissionPolicy", lambda s: s["mutations"][0].update(patchType="Apply")),
]


def main(directory):
    documents = {}
    for name in ("validating", "mutating"):
        for d in yaml.safe_load_all(open("%s/policy/%s.yaml" % (directory, name))):
            documents[d["kind"]] = d
            if d["apiVersion"] != "admissionregistration.k8s.io/v1" or d["kind"] not in FIELDS:
                say("%s of %s is not one that is known" % (d["kind"], d["apiVersion"]))
            else:
                fields(d["kind"], d["spec"], FIELDS[d["kind"]])
    if sorted(documents) != sorted(FIELDS):
        say("there are %s" % sorted(documents))
    for what, kind, spoil in DEFECTS:
        if not spoilt(documents[kind], spoil):
            say("the check of the fields does not see %s" % what)
    for what, obj, sentence in VALIDATED:
        got = denied(documents["ValidatingAdmissionPolicy"], obj)
        if bool(got) != bool(sentence) or (sentence and not any(sentence in g for g in got)):
            say("%s: %s" % (what, got or "it is allowed"))
    mutating = documents["MutatingAdmissionPolicy"]
    for what, obj, wanted in MUTATED + workloads():
        got = mutated(mutating, obj)
        if got != (wanted and {"metadata": {"annotations": wanted}, "spec": {"runtimeClassName": "gpuarb"}}):
            say("mutating, %s: %s" % (what, got))
        # What one policy adds, the other must allow.
        if denied(documents["ValidatingAdmissionPolicy"], after(obj, wanted)):
            say("%s: what the one adds the other denies: %s" % (what, denied(documents["ValidatingAdmissionPolicy"], after(obj, wanted))))
    if bad:
        sys.exit(1)
    print("policy: fields are those of the table, %d defects seen, %d pods judged (make check-schemas compares the table with the published schemas)" % (len(DEFECTS), len(VALIDATED) + len(MUTATED + workloads())))


if __name__ == "__main__":
    main(sys.argv[1])
