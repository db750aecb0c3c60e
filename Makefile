# Astraeus for Slurm. `make help` lists what people use.
SHELL := /bin/sh
PYTHON ?= python3
VENV := .venv
PY := $(VENV)/bin/python
DESTDIR ?=
PREFIX ?= /usr
OPT ?= /opt/astraeus
SYSCONFDIR ?= /etc
PIP_ARGS ?=
JOBS ?= 8

.PHONY: help venv check lint types unit scorecard scorecard-update test test-cluster test-full bench bench-rules demo demo-down \
        spank install install-node install-controller uninstall docs clean

help:
	@echo "make demo         a Slurm cluster in containers, a hung job, what Astraeus does about it"
	@echo "make demo-down    take it away again"
	@echo "make install      as a site would: plugin, Prolog pieces, monitor, controller (DESTDIR, OPT, SYSCONFDIR)"
	@echo "make check        style, types and unit tests (under a minute)"
	@echo "make test         check, scorecard and the scenarios on real Slurm (under 40 minutes)"
	@echo "make test-full    test and everything longer"
	@echo "make bench        what a node pays: monitor, Prolog, plugin, beside their goals (as root, ten minutes, no Slurm)"
	@echo "make bench-rules  how long the judge takes for 80,000 workers, and for 64 (two minutes)"
	@echo "make scorecard    each fault and look-alike, and what is said of it (CORPUS=DIR: those of a folder)"
	@echo "make scorecard-update  keeps its figures and page, where none has fallen"
	@echo "make docs         the pages that are made from the tables"

# ---- the developers' environment

$(VENV)/.stamp: pyproject.toml
	@$(PYTHON) -m venv $(VENV) >/dev/null 2>&1 || { \
	  if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	    apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq python3-venv >/dev/null && $(PYTHON) -m venv $(VENV); \
	  else echo "python3 can't make a virtual environment: install python3-venv" >&2; exit 1; fi; }
	$(PY) -m pip install -q -e '.[monitor,controller,test,check]'
	@touch $@

venv: $(VENV)/.stamp

# ---- checks and tests

lint: venv
	$(VENV)/bin/ruff check .

types: venv
	MYPYPATH=protocol:controller $(VENV)/bin/mypy --explicit-package-bases protocol/astraeus_protocol controller/astraeus_controller/rules controller/astraeus_controller/trust

# Four, be there two cores: half of their time goes into waiting for processes that are being watched. The bytecode is
# kept, whatever the environment says: to write 2,000 assertions anew costs each of the four two seconds.
unit: venv
	PYTHONDONTWRITEBYTECODE= $(PY) -m pytest -q -n 4 --dist worksteal tests/unit slurm-test-cluster/tests

check: lint types unit

# The project's own cases against docs/scorecard.json, or those of a folder: make scorecard CORPUS=DIR.
scorecard: venv
	@PYTHONPATH=tests $(PY) -m scorecard --quiet $(if $(CORPUS),--corpus $(CORPUS))
	$(if $(CORPUS),,$(PY) -m pytest -q tests/scorecard)

scorecard-update: venv
	@PYTHONPATH=tests $(PY) -m scorecard --quiet --update

test-cluster: venv
	$(PY) -m slurm_test_cluster.run_tests --jobs $(JOBS)

test: check scorecard test-cluster

test-full: check scorecard
	$(PY) -m slurm_test_cluster.run_tests --jobs $(JOBS) --full

# What a node pays, measured on this machine: docs/performance.md. BENCH="--only prolog" for a part of it.
bench: venv
	@PYTHONPATH=tests:slurm-test-cluster $(PY) -m bench $(BENCH)

# What the judge pays for 80,000 workers, and for 64: docs/performance.md. --keep: into docs/bench-rules.json.
bench-rules: venv
	@PYTHONPATH=tests:slurm-test-cluster $(PY) -m bench.rules $(BENCH)

# ---- the demo

demo: venv
	@$(PY) -m slurm_test_cluster.demo

demo-down: venv
	@$(PY) -m slurm_test_cluster.demo --down

demo demo-down test-cluster test-full: export PYTHONPATH := slurm-test-cluster

# ---- install

spank:
	$(MAKE) -C spank

install: install-node install-controller

$(DESTDIR)$(OPT)/venv/bin/python:
	install -d $(DESTDIR)$(OPT)
	$(PYTHON) -m venv $(DESTDIR)$(OPT)/venv

install-node: spank $(DESTDIR)$(OPT)/venv/bin/python
	$(DESTDIR)$(OPT)/venv/bin/pip install -q $(PIP_ARGS) '.[monitor]'
	install -d $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/lib/astraeus $(DESTDIR)$(PREFIX)/lib/systemd/system
	ln -sf $(OPT)/venv/bin/astraeus-monitor $(DESTDIR)$(PREFIX)/sbin/astraeus-monitor
	$(MAKE) -C spank install DESTDIR=$(DESTDIR) prefix=$(PREFIX) sysconfdir=$(SYSCONFDIR)
	install -m 0755 prolog/start-monitor $(DESTDIR)$(PREFIX)/lib/astraeus/start-monitor
	install -d $(DESTDIR)$(SYSCONFDIR)/slurm/plugstack.conf.d $(DESTDIR)$(SYSCONFDIR)/slurm/prolog.d $(DESTDIR)$(SYSCONFDIR)/slurm/epilog.d
	install -m 0755 prolog/prolog.d/10-astraeus.sh $(DESTDIR)$(SYSCONFDIR)/slurm/prolog.d/10-astraeus.sh
	install -m 0755 prolog/epilog.d/00-astraeus.sh $(DESTDIR)$(SYSCONFDIR)/slurm/epilog.d/00-astraeus.sh
	install -m 0755 prolog/epilog.d/00-astraeus.sh $(DESTDIR)$(SYSCONFDIR)/slurm/epilog.d/zz-astraeus.sh
	install -m 0644 packaging/astraeus-monitor.service packaging/astraeus-monitor.path $(DESTDIR)$(PREFIX)/lib/systemd/system/
	install -d $(DESTDIR)$(SYSCONFDIR)/enroot/mounts.d $(DESTDIR)$(SYSCONFDIR)/enroot/hooks.d $(DESTDIR)$(PREFIX)/lib/tmpfiles.d
	install -m 0644 packaging/enroot/50-astraeus.fstab $(DESTDIR)$(SYSCONFDIR)/enroot/mounts.d/50-astraeus.fstab
	install -m 0755 packaging/enroot/50-astraeus.sh $(DESTDIR)$(SYSCONFDIR)/enroot/hooks.d/50-astraeus.sh
	install -m 0644 packaging/tmpfiles.d/astraeus.conf $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/astraeus.conf
	install -d $(DESTDIR)$(SYSCONFDIR)/astraeus
	install -m 0644 packaging/astraeus.toml $(DESTDIR)$(SYSCONFDIR)/astraeus/astraeus.toml.example

install-controller: $(DESTDIR)$(OPT)/venv/bin/python
	$(DESTDIR)$(OPT)/venv/bin/pip install -q $(PIP_ARGS) '.[controller]'
	install -d $(DESTDIR)$(PREFIX)/bin $(DESTDIR)$(PREFIX)/sbin $(DESTDIR)$(PREFIX)/lib/systemd/system $(DESTDIR)$(SYSCONFDIR)/astraeus
	ln -sf $(OPT)/venv/bin/astraeus $(DESTDIR)$(PREFIX)/bin/astraeus
	ln -sf $(OPT)/venv/bin/astraeus-controller $(DESTDIR)$(PREFIX)/sbin/astraeus-controller
	install -m 0644 packaging/astraeus-controller.service $(DESTDIR)$(PREFIX)/lib/systemd/system/
	install -d $(DESTDIR)$(PREFIX)/lib/sysusers.d
	install -m 0644 packaging/sysusers.d/astraeus.conf $(DESTDIR)$(PREFIX)/lib/sysusers.d/astraeus.conf
	install -d $(DESTDIR)$(PREFIX)/share/man/man7
	install -m 0644 packaging/man/astraeus-rules.7 $(DESTDIR)$(PREFIX)/share/man/man7/astraeus-rules.7
	install -m 0644 packaging/astraeus.toml $(DESTDIR)$(SYSCONFDIR)/astraeus/astraeus.toml.example

uninstall:
	$(MAKE) -C spank uninstall DESTDIR=$(DESTDIR) prefix=$(PREFIX) sysconfdir=$(SYSCONFDIR)
	rm -rf $(DESTDIR)$(OPT)/venv $(DESTDIR)$(PREFIX)/lib/astraeus
	rm -f $(DESTDIR)$(PREFIX)/bin/astraeus $(DESTDIR)$(PREFIX)/sbin/astraeus-controller $(DESTDIR)$(PREFIX)/sbin/astraeus-monitor
	rm -f $(DESTDIR)$(SYSCONFDIR)/slurm/prolog.d/10-astraeus.sh \
	      $(DESTDIR)$(SYSCONFDIR)/slurm/epilog.d/00-astraeus.sh \
	      $(DESTDIR)$(SYSCONFDIR)/slurm/epilog.d/zz-astraeus.sh $(DESTDIR)$(SYSCONFDIR)/astraeus/astraeus.toml.example
	rm -f $(DESTDIR)$(PREFIX)/lib/systemd/system/astraeus-monitor.service $(DESTDIR)$(PREFIX)/lib/systemd/system/astraeus-monitor.path \
	      $(DESTDIR)$(PREFIX)/lib/systemd/system/astraeus-controller.service $(DESTDIR)$(PREFIX)/lib/sysusers.d/astraeus.conf \
	      $(DESTDIR)$(PREFIX)/share/man/man7/astraeus-rules.7
	rm -f $(DESTDIR)$(SYSCONFDIR)/enroot/mounts.d/50-astraeus.fstab $(DESTDIR)$(SYSCONFDIR)/enroot/hooks.d/50-astraeus.sh
	@cd $(DESTDIR)$(SYSCONFDIR) && rmdir enroot/mounts.d enroot/hooks.d enroot 2>/dev/null || true
	@if grep -qs '^ *bind path *= */run/astraeus' $(DESTDIR)$(SYSCONFDIR)/apptainer/apptainer.conf \
	    $(DESTDIR)$(SYSCONFDIR)/singularity/singularity.conf; then \
	  echo "left $(PREFIX)/lib/tmpfiles.d/astraeus.conf: without its folder no container would start here until"; \
	  echo 'this has run: apptainer config global --unset "bind path" /run/astraeus/jobs'; \
	else rm -f $(DESTDIR)$(PREFIX)/lib/tmpfiles.d/astraeus.conf; fi

docs: venv
	$(PY) -m astraeus_controller.config_docs
	$(PY) -m astraeus_controller.rules_docs
	$(VENV)/bin/astraeus-monitor config > docs/monitor.toml

clean:
	$(MAKE) -C spank clean
	rm -rf build *.egg-info .pytest_cache .ruff_cache .mypy_cache
