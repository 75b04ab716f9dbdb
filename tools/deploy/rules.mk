# Installing, packages, and the engines that people already run.
PREFIX     ?= /usr/local
LIBDIR     ?= $(PREFIX)/lib
SYSCONFDIR ?= /etc
UNITDIR    ?= $(PREFIX)/lib/systemd/system
ZSHDIR     ?= $(PREFIX)/share/zsh/site-functions
# Empty: where the python3 of this machine looks (tools/deploy/install.sh).
PYTHONDIR  ?=
DESTDIR    ?=
# One place says it: what `--version` prints.
VERSION    := $(shell sed -n 's/^\#define GPUARB_VERSION "\(.*\)"/\1/p' include/gpuarb.h)

# What is installed; the tests are not. The simulated GPU is for `gpuarb-run --sim`.
SIMULATOR := $(patsubst %,$(BUILD)/sim/%,libcuda.so.1 libnvidia-ml.so.1 libcudart.so.13 gpusim-report)
PRODUCT   := $(TOOLS) $(PRELOAD) $(BUILD)/libgpuarb.a $(BUILD)/libgpuarb.so $(BUILD)/arbiter.conf.5 $(SIMULATOR)

INSTALL = BUILD="$(BUILD)" VERSION="$(VERSION)" DESTDIR="$(DESTDIR)" PREFIX="$(PREFIX)" LIBDIR="$(LIBDIR)" \
	SYSCONFDIR="$(SYSCONFDIR)" UNITDIR="$(UNITDIR)" ZSHDIR="$(ZSHDIR)" PYTHONDIR="$(PYTHONDIR)" \
	tools/deploy/install.sh

# Clients and the simulated GPU that they run on.
TRIAL := $(PRODUCT) $(BUILD)/simload

.PHONY: install uninstall product
product: $(PRODUCT)

install: $(PRODUCT) ## install below PREFIX (/usr/local), in a copy of the root directory if DESTDIR is given
	@$(INSTALL) install

uninstall: ## remove what `make install` with the same PREFIX and DESTDIR put there
	@$(INSTALL) uninstall

# Cheap enough for every check: files, places, links, programs that build against it.
CHECK    += check-install
CHECK_PACKAGES += pkg-config

.PHONY: check-install
check-install: $(PRODUCT) ## install into an empty directory, build against it, take it away again
	@CC="$(CC)" test/deploy/installed.sh $(BUILD)

CHECK += check-first
.PHONY: check-first
check-first: $(TRIAL) ## what a new user does first: packages, missing libraries, and in a copy of this system make install and gpuarb-node
	@test/deploy/first.sh $(BUILD)

CHECK += check-systemd
.PHONY: check-systemd
check-systemd: $(PRODUCT) ## units, user and directories by systemd's own judgement
	@test/deploy/systemd.sh $(BUILD)

# The real thing: these install what they need, and are not part of `make check`.
.PHONY: check-slurm deps-slurm
deps-slurm:
	@test/install-deps.sh slurmctld slurmd slurm-client munge jq

check-slurm: $(TRIAL) deps-slurm ## jobs with shards on a real Slurm cluster of one node
	@test/deploy/slurm.sh $(BUILD)

.PHONY: check-containers deps-containers
deps-containers:
	@test/install-deps.sh podman runc crun containerd jq util-linux

check-containers: $(TRIAL) deps-containers ## unmodified images under limits: podman and CDI; gpuarb-runtime under podman and containerd
	@test/deploy/cdi.sh $(BUILD)
	@test/deploy/runtime-containers.sh $(BUILD)

.PHONY: check-adapters deps-adapters
deps-adapters:
	@test/install-deps.sh jupyterhub node-configurable-http-proxy python3-distributed python3-celery podman-compose podman docker.io docker-compose runc jq curl util-linux procps

check-adapters: $(TRIAL) deps-adapters ## JupyterHub, Dask, Celery, podman-compose and docker-compose with the adapters, each within one point
	@test/deploy/adapters.sh $(BUILD)

.PHONY: deb check-deb deps-deb
deps-deb:
	@test/install-deps.sh $(sort $(PACKAGES) build-essential dpkg-dev debhelper dh-python python3 fakeroot pkg-config)

deb: deps-deb ## build the Debian packages gpuarb, libgpuarb1, libgpuarb-dev, python3-gpuarb into build/deb
	@tools/deploy/deb.sh $(BUILD) $(VERSION)

.PHONY: deps-lintian
deps-lintian:
	@test/install-deps.sh lintian

check-deb: deb deps-lintian ## lintian, and install, use and remove them in a copy of this system
	@test/deploy/packages.sh $(BUILD)

.PHONY: check-prometheus deps-prometheus
deps-prometheus:
	@test/install-deps.sh prometheus prometheus-node-exporter jq

check-prometheus: $(TRIAL) deps-prometheus ## the metrics, scraped by a real node exporter and a real Prometheus
	@test/deploy/prometheus.sh $(BUILD)

CHECK += check-runtime
.PHONY: check-runtime
check-runtime: $(TRIAL) ## gpuarb-runtime on bundles: what becomes of them, and what must not start
	@python3 test/deploy/runtime.py $(BUILD)
	@python3 test/deploy/runtime_attacks.py $(BUILD)

CHECK    += check-kubernetes
CHECK_PACKAGES += python3-yaml
.PHONY: check-kubernetes check-k8s
check-kubernetes: $(PRODUCT) ## the manifests, as far as they can be judged without a cluster
	@test/deploy/kubernetes.sh $(BUILD)

# What npm and Debian's unstable suite bring: not part of `make check`.
.PHONY: check-schemas
check-schemas: ## every manifest against the schemas that Kubernetes publishes (npm brings them)
	@test/deploy/schemas.sh $(BUILD)

.PHONY: check-policies deps-policies
deps-policies:
	@test/install-deps.sh debootstrap util-linux python3-yaml

check-policies: deps-policies ## the admission policies by the admission plugins of Kubernetes 1.36, which are built for it
	@test/deploy/plugins.sh $(BUILD)

# On the cluster of KUBECONFIG, if it is set. Else on one that is built here, of Debian's sources: once, in $(BUILD)/k8s.
ifdef KUBECONFIG
check-k8s: ## the end-to-end case on a real cluster: that of KUBECONFIG (IMAGE as test/k8s/end-to-end.sh says), else one of our own
	@test/k8s/end-to-end.sh $(NODE)
else
.PHONY: deps-k8s
deps-k8s:
	@test/install-deps.sh golang-go golang-github-modern-go-reflect2-dev dpkg-dev rsync debootstrap podman runc jq openssl iproute2 util-linux

check-k8s: $(TRIAL) deb deps-k8s
	@test/k8s/build.sh $(BUILD)/k8s/programs; r=$$?; [ $$r != 77 ] || exit 0; [ $$r = 0 ] || exit 1; \
	test/k8s/images.sh $(BUILD) $(BUILD)/k8s/images && \
	test/k8s/cluster.sh $(BUILD)/k8s/programs $(BUILD)/k8s/images $(BUILD)/sim test/k8s/runtime.sh $(BUILD) $(BUILD)/k8s/images && \
	test/k8s/cluster.sh $(BUILD)/k8s/programs $(BUILD)/k8s/images $(BUILD)/sim sh -c 'test/k8s/end-to-end.sh && test/k8s/node.sh $(BUILD)'
endif

CHECK += check-rights
.PHONY: check-rights
check-rights: $(TRIAL) ## who may join, look, set and clean up, with three users and in containers
	@test/deploy/rights.sh $(BUILD)

# The same sources with the next layout version, as an upgrade would bring it.
NEXT       := $(BUILD)/next
NEXT_FILES := gpuarb-set gpuarb-watchdog gpuarb-node libgpuarb-preload.so
$(NEXT)/built: $(PRODUCT)
	@mkdir -p $(NEXT)/include/gpuarb
	@sed 's/^\(#define ARB_ABI_VERSION\) .*/\1 1000u/' include/gpuarb/abi.h >$(NEXT)/include/gpuarb/abi.h
	@CPPFLAGS=-I$(NEXT)/include $(MAKE) --no-print-directory -s $(JOBS) BUILD=$(NEXT) OPT=-O0 $(NEXT_FILES:%=$(NEXT)/%) >/dev/null
	@touch $@

# The same layout, but a later release, and by another compiler for all one can see.
LATER := $(BUILD)/later
$(LATER)/built: $(PRODUCT)
	@CPPFLAGS='-DGPUARB_VERSION="\"9.9\""' $(MAKE) --no-print-directory -s $(JOBS) BUILD=$(LATER) OPT=-O0 $(LATER)/gpuarb-set $(LATER)/libgpuarb-preload.so >/dev/null
	@touch $@

CHECK += check-upgrade
.PHONY: check-upgrade
check-upgrade: $(TRIAL) $(NEXT)/built $(LATER)/built ## an old and a new version on one segment, with clients running
	@test/deploy/upgrade.sh $(BUILD) $(NEXT) $(LATER)

.PHONY: check-boot deps-boot
deps-boot:
	@test/install-deps.sh systemd-container

check-boot: $(TRIAL) deb deps-boot ## the units under a real systemd, in a copy of this system
	@test/deploy/boot.sh $(BUILD)
