#!/usr/bin/env python3
"""Every manifest against the schemas that Kubernetes publishes, as its JavaScript client carries them: the client is generated
from the OpenAPI document of one release, and each of its declarations says which fields an object has, their types, and which
are required. A field that is not declared is an error. Also compared: the table of policy.py, which make check goes by.
Usage: schemas.py MANIFESTS PACKAGE...     packages as npm packs them: of the newest release first, then older ones"""
import copy
import os
import re
import sys
import tarfile

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import policy  # noqa: E402

FIELD = re.compile(r"^    '([^']+)'(\?)?: (\{\s*\[key: string\]: ([^;]+);\s*\}|[^;{]+);", re.M)
COMMENT = re.compile(r"/\*\*((?:(?!\*/).)*)\*/\s*$", re.S)
# Kubernetes takes a number for a quantity (limits: 30) as well as a string, which version 2 of OpenAPI cannot
# express.
QUANTITIES = ["limits", "requests", "hard"]
SIMPLE = {"string": (str,), "boolean": (bool,), "number": (int, float), "IntOrString": (int, str), "Date": (str,)}


class Release:
    """The declarations of one package, which is one release."""

    def __init__(self, path):
        self.files, self.models = {}, {}
        with tarfile.open(path) as package:
            for member in package:
                match = re.search(r"/gen/(models?|apis?)/(\w+)\.d\.ts$", member.name)
                if match:
                    self.files[match[2].lower()] = package.extractfile(member).read().decode()
        # A file that did not change keeps the version from which it was made.
        versions = re.findall(r"(?:release-|v)1\.(\d+)", "\n".join(text[:400] for text in self.files.values()))
        self.name = "1.%d" % max(map(int, versions))

    def model(self, name):
        """Returns the fields of a class: name -> (type, required, description)."""
        if name not in self.models:
            text, fields = self.files[name.lower()], {}
            for match in FIELD.finditer(text):
                comment = COMMENT.search(text[:match.start()])
                kind = "{%s}" % match[4] if match[4] else match[3]
                fields[match[1].lstrip("_")] = (kind, not match[2], comment[1] if comment else "")
            if not fields:
                raise SystemExit("schemas: %s has no fields in %s" % (name, self.name))
            self.models[name] = fields
        return self.models[name]

    def of(self, document):
        """The class of an object, if this release serves it."""
        group, _, version = document["apiVersion"].rpartition("/")
        group = "".join(word.capitalize() for word in group.replace(".k8s.io", "").split(".")) or "Core"
        version = version[0].upper() + version[1:]
        served = self.files.get(("%s%sApi" % (group, version)).lower(), "")
        return version + document["kind"] if re.search(r"\bcreate(Namespaced)?%s\(" % document["kind"], served) else None


def judge(release, kind, value, where, patch, found):
    """Appends to `found` what is wrong. A patch may leave required fields out."""
    array = re.match(r"Array<(.+)>$", kind)
    if array:
        if not isinstance(value, list):
            found.append("%s is not a list" % where)
        for i, item in enumerate(value if isinstance(value, list) else []):
            judge(release, array[1], item, "%s[%d]" % (where, i), patch, found)
    elif kind.startswith("{"):
        if not isinstance(value, dict):
            found.append("%s is not a map" % where)
        for name, item in value.items() if isinstance(value, dict) else []:
            quantity = where.rpartition(".")[2] in QUANTITIES and isinstance(item, int) and not isinstance(item, bool)
            if not isinstance(name, str):
                found.append("%s: the key %r is not a string" % (where, name))
            elif not quantity:
                judge(release, kind[1:-1], item, "%s.%s" % (where, name), patch, found)
    elif kind in SIMPLE:
        if not isinstance(value, SIMPLE[kind]) or (isinstance(value, bool) and kind != "boolean"):
            found.append("%s is not a %s: %r" % (where, kind, value))
    elif kind != "any":
        fields = release.model(kind)
        if not isinstance(value, dict):
            found.append("%s is not a %s" % (where, kind))
            return
        for name, (_, required, _) in fields.items():
            if required and name not in value and not patch:
                found.append("%s has no %s" % (where, name))
        for name, item in value.items():
            if name not in fields:
                found.append("%s: Kubernetes %s knows no field %s of %s" % (where, release.name, name, kind))
            else:
                judge(release, fields[name][0], item, "%s.%s" % (where, name), patch, found)


def wrong(release, document, patch):
    kind = release.of(document)
    if not kind:
        return ["Kubernetes %s serves no %s of %s" % (release.name, document["kind"], document["apiVersion"])]
    found = []
    judge(release, kind, document, document["kind"], patch, found)
    return found


def places(value, at=()):
    """Yields the paths to all values in a document."""
    yield at
    for key, item in value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else []:
        yield from places(item, at + (key,))


def planted(release, document, patch):
    """Plants a defect at every place: a field that there is not, and something of another type. Returns how many were planted
    and those that were not seen."""
    count, unseen = 0, []
    for path in places(document):
        if path in (("apiVersion",), ("kind",)):  # they say which class it is
            continue
        value = document
        for key in path:
            value = value[key]
        free = any(key in ("annotations", "labels", "matchLabels", "nodeSelector") + tuple(QUANTITIES) for key in path)
        defects = [{**value, "noSuchField": "x"}] if isinstance(value, dict) and not free else []
        defects += [["x"]] if path and not isinstance(value, list) else ["x"] if isinstance(value, list) else []
        for defect in defects:
            spoilt = copy.deepcopy(document)
            at = spoilt
            for key in path[:-1]:
                at = at[key]
            if path:
                at[path[-1]] = defect
            else:
                spoilt = defect
            count += 1
            if not wrong(release, spoilt, patch):
                unseen.append("%s, with %r" % (".".join(map(str, path)) or "at its top", defect))
    return count, unseen


def table(release, kind, known, where, found):
    """The table of policy.py against a class: the same fields, lists where it has lists, required where it requires."""
    required, others = known
    fields = release.model(kind)
    if set(required + others) != set(fields):
        found.append("the table of %s has not the fields of %s in %s: %s" % (where, kind, release.name, set(required + others) ^ set(fields)))
    for name, (of, needed, description) in fields.items():
        array = re.match(r"Array<(.+)>$", of)
        if needed and name not in required:
            found.append("the table does not require %s of %s" % (name, where))
        if bool(array) != (name in policy.LISTS):
            found.append("the table says otherwise whether %s of %s is a list" % (name, where))
        if (not array and of not in SIMPLE) != (name in policy.OBJECTS):
            found.append("the table says otherwise whether %s of %s is an object" % (name, where))
        for word in policy.WORDS.get(name, []):
            if word not in description:
                found.append("of %s of %s the schema does not say %s" % (name, where, word))
        if name in policy.PARTS and name in required + others:
            table(release, array[1] if array else of, policy.PARTS[name], where + "." + name, found)


def main(directory, packages):
    newest, *older = [Release(path) for path in packages]
    found, judged, defects = [], 0, 0
    for path, document, patch in policy.manifests(directory):
        judged += 1
        cases = [(newest, document)]
        if document["kind"].startswith("MutatingAdmissionPolicy"):
            # As the page says: where v1 is not served yet, the object is applied under its older version.
            for release, version in ((newest, "v1beta1"), (older[0], "v1beta1")):
                cases.append((release, {**document, "apiVersion": "admissionregistration.k8s.io/" + version}))
        else:
            cases += [(release, document) for release in older]
        for release, case in cases:
            found += ["%s: %s" % (path, sentence) for sentence in wrong(release, case, patch)]
        count, unseen = planted(newest, document, patch)
        defects += count
        found += ["%s: a defect is not seen: %s" % (path, sentence) for sentence in unseen]
    for kind, known in policy.FIELDS.items():
        table(newest, newest.model("V1" + kind)["spec"][0], known, kind, found)
    for sentence in found:
        print("schemas: " + sentence, file=sys.stderr)
    if found or not judged:
        sys.exit(1)
    print("schemas: %d objects have the fields and types of Kubernetes %s and %s, %d planted defects seen, the table of the policies agrees" %
          (judged, newest.name, " and ".join(r.name for r in older), defects))


main(sys.argv[1], sys.argv[2:])
