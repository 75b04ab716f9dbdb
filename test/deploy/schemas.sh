#!/bin/bash
# Checks the manifests against the schemas of Kubernetes 1.36, 1.34 and 1.30, which npm brings with Kubernetes' own
# client. The packages are unpacked and read; nothing of them runs. Usage: schemas.sh BUILD
set -u
cd "$(dirname "$0")/../.." || exit 1
mkdir -p "$1/schemas"
dir=$(readlink -f "$1/schemas")
what=schemas
# shellcheck source=test/deploy/common.sh
. test/deploy/common.sh
needs npm
python3 -c 'import yaml' 2>/dev/null || skip "there is no python3-yaml here"
packages=()
for version in 2.0.1 1.4.0 0.22.3; do
	file=$dir/kubernetes-client-node-$version.tgz
	[ -s "$file" ] || said=$(cd "$dir" && npm pack --loglevel=error "@kubernetes/client-node@$version" 2>&1) ||
		skip "npm has no @kubernetes/client-node $version: ${said%%$'\n'*}"
	packages+=("$file")
done
python3 test/deploy/schemas.py tools/deploy/kubernetes "${packages[@]}"
