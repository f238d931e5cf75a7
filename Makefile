# The usual steps by their usual names. Meson does the work; see CONTRIBUTING.md.

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
SETTINGS ?=
FUZZ_SECONDS ?= 20
BENCH_SECONDS ?= 10
BENCH_SANDBOXES ?= 1000
SANDBOXES ?= 10000
HOSTILE_MESSAGES ?= 1000000
SOAK_SECONDS ?= 3600
PAUSES ?= 1000
PAUSE_SECONDS ?= 3600
SOAK_SEED ?=

CAY = $(BUILD)/src/cli/cay

CRIU ?= /usr/local/sbin/criu

.PHONY: all build programs criu up down test clients escapes vm-escapes check asan fuzz hostile bench bench-egress bench-backends bench-fairness bench-refusals egress-clients many pools soak crash-matrix pause-leaks no-trace million-files install clean bad-worlds

all: build

build: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD) --prefix=$(PREFIX)

# The program that a pause on disk will need, from Debian's source archive; some 15 MB and a minute. Nothing else uses it.
criu:
	@scripts/criu --dest=$(CRIU)

# Without tests, fuzzers, man pages and completions.
programs: $(BUILD)/build.ninja
	ninja -C $(BUILD) programs

# A server that runs is said so at once, before anything is installed or built.
up:
	@if [ -x $(CAY) ] && $(CAY) up --check $(SETTINGS); then exit 0; fi; \
	scripts/deps build run && $(MAKE) --no-print-directory programs && scripts/criu --offer && $(CAY) up $(SETTINGS)

down:
	@if [ -x $(CAY) ]; then $(CAY) down $(SETTINGS); else echo "cay is not built, so nothing of it runs"; fi

test:
	@test/run --build=$(BUILD)

# Integrations above E2B's SDKs, newest and pinned, unmodified; writes their table into docs/compatibility.md. Needs the
# registries and about half an hour; four of them are part of `make test`. CLIENTS="--policy=FILE --ceiling=allow" where the
# registries are mirrors at private addresses; --state=DIR keeps the templates for the next run.
clients:
	@scripts/deps build run test
	@$(MAKE) --no-print-directory build
	@test/clients/run.py --build=$(BUILD) --write=docs/compatibility.md $(CLIENTS)

check:
	@scripts/check

# Coding agents and SDKs (test/egress/clients) inside sandboxes, against stand-ins of their model APIs: docs/agents.md.
# Some 1.5 GB from npm and PyPI the first time; ten minutes. Then other programs, against stand-ins of their servers, and
# against a host that is refused: two minutes, docs/reports/egress-clients.md. `scripts/deps egress-clients` installs them.
egress-clients: build
	@CAY_EGRESS_CLIENTS=all CAY_EGRESS_CLIENTS_REPORT=$(CURDIR)/docs/reports/egress-clients.md \
		test/run --only=scenario --files test_agents.py test_programs.py

# Every escape with every positive control; writes docs/reports/security-tests.md. A quick form is part of `make test`.
# Ways past cay-egress likewise: docs/reports/egress-security-tests.md; the tests that it names are all part of `make test`.
escapes:
	@scripts/deps build run test
	@[ -e build-escapes/build.ninja ] || meson setup build-escapes -Dtest_switches=true
	@ninja -C build-escapes
	@test/escapes/run.py --build=build-escapes --write=docs/reports/security-tests.md
	@test/escapes/egress.py --build=build-escapes --write=docs/reports/egress-security-tests.md

# The same, and what must not be tried on this machine, in one of its own with control groups of version 2 only.
VM_KERNEL ?=
vm-escapes:
	@scripts/deps build run test vm
	@[ -e build-escapes/build.ninja ] || meson setup build-escapes -Dtest_switches=true
	@ninja -C build-escapes
	@test/vm/report.py --build=build-escapes --kernel="$(VM_KERNEL)" --write=docs/reports/cgroup-v2.md || [ $$? -eq 77 ]

asan:
	@test/run --build=build-asan --sanitize --only=unit,scenario

fuzz:
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

# A million hostile messages to privd; `make test` sends some.
hostile:
	@CAY_HOSTILE_MESSAGES=$(HOSTILE_MESSAGES) test/run --build=$(BUILD) --only=scenario --files test_hostile.py

# Worlds that lack something, in their long form; `make test` has the short one.
bad-worlds:
	@CAY_BAD_WORLDS=1 test/run --build=$(BUILD) --only=scenario --files test_bad_world_start.py test_bad_world_http.py \
		test_bad_world_running.py test_bad_world_limits.py

# Speed and memory beside floors and peers; prints a table, writes $(BUILD)/bench.json and bench.svg.
# WRITE=docs writes them there, and the table into docs/reports/benchmarks.md.
bench:
	@scripts/deps build run test bench
	@$(MAKE) --no-print-directory build
	@BENCH_SECONDS=$(BENCH_SECONDS) BENCH_SANDBOXES=$(BENCH_SANDBOXES) \
		scripts/bench run $(BUILD) --json=$(BUILD)/bench.json --svg=$(BUILD)/bench.svg $(if $(WRITE),--write=$(WRITE)/reports)

# The way out beside no proxy, a bare relay, HAProxy and mitmproxy. WRITE=docs writes docs/reports/egress-benchmarks.md.
bench-egress:
	@scripts/deps build run test bench-egress
	@$(MAKE) --no-print-directory build
	@scripts/bench egress $(BUILD) --json=$(BUILD)/egress-bench.json $(if $(WRITE),--write=$(WRITE)/reports)

# An execution of an agent by LangChain's backends, E2B's SDKs and without a sandbox, and a tool of MCP. WRITE=docs writes
# docs/reports/backend-benchmarks.md.
bench-backends:
	@scripts/deps build run test
	@$(MAKE) --no-print-directory build
	@scripts/bench backends $(BUILD) --json=$(BUILD)/backend-bench.json $(if $(WRITE),--write=$(WRITE)/reports)

# What a sandbox takes of the kernel beyond what it is charged with, and what a neighbour pays meanwhile. A few MiB and a
# few seconds of each. WRITE=docs writes docs/reports/neighbour-cost.md.
pools:
	@scripts/deps build run test
	@$(MAKE) --no-print-directory build
	@test/pools/measure.py --build=$(BUILD) --json=$(BUILD)/pools.json
	@test/pools/neighbour.py --build=$(BUILD) $(if $(WRITE),--write=$(WRITE)/reports/neighbour-cost.md)

# What a neighbour of a sandbox at its limits notices. WRITE=docs writes docs/reports/fairness.md.
bench-fairness:
	@$(MAKE) --no-print-directory build
	@[ -x $(BUILD)/venv/bin/python ] || { /usr/bin/python3 -m venv $(BUILD)/venv && \
		$(BUILD)/venv/bin/pip install -q -r test/sdk/requirements.txt; }
	@$(BUILD)/venv/bin/python test/bench/fairness.py --build=$(BUILD) $(if $(WRITE),--write=$(WRITE)/reports)

# The time of 404 for ids of another tenant beside that for ids that never were, of each route.
bench-refusals:
	@scripts/deps build run
	@$(MAKE) --no-print-directory build
	@scripts/bench refusals $(BUILD) --json=$(BUILD)/refusals.json

# So many idle sandboxes at once, and what they cost. WRITE=docs writes docs/reports/many.md.
many:
	@scripts/deps build run
	@$(MAKE) --no-print-directory build
	@scripts/bench many $(BUILD) --sandboxes=$(SANDBOXES) --json=$(BUILD)/many.json $(if $(WRITE),--write=$(WRITE)/reports)

# Each program killed at each of its calls of every change of test/scenario/crash_*.py; each call of
# cay-privd failing (test_failing_calls.py); 1,000 pauses in a row (docs/reports/reliability.md). `make test` has a tenth of these points,
# another one each day. Points: $(BUILD)/crash-matrix.txt.
crash-matrix:
	@rm -f $(BUILD)/crash-matrix.txt
	@CAY_CRASH_MATRIX=1 CAY_PAUSE_TIMES=1000 test/run --build=$(BUILD) --suite-seconds=14400 --only=scenario --files test_crash_matrix.py test_pause.py test_failing_calls.py

# 1,000 pauses and resumes in each tier, an hour of each at most (PAUSES, PAUSE_SECONDS): nothing is lost inside, nothing is left outside.
# `make test` has a few of each.
pause-leaks:
	@CAY_LEAK_TIMES=$(PAUSES) CAY_LEAK_SECONDS=$(PAUSE_SECONDS) PYTEST_ADDOPTS=-s \
		test/run --build=$(BUILD) --suite-seconds=14400 --only=scenario --files test_pause_leaks.py

# An hour of mixed load with kills of the daemons; `make test` has a minute of it. Writes docs/reports/soak.md.
soak:
	@test/run --build=$(BUILD) --only=soak --soak-seconds=$(SOAK_SECONDS) --soak-seed=$(SOAK_SEED) --soak-write=docs/reports/soak.md

# 1,000 sandboxes in a row and 500 at once; `make test` has a shorter form. Writes docs/reports/no-trace.md.
no-trace:
	@CAY_NO_TRACE=full CAY_NO_TRACE_REPORT=$(CURDIR)/docs/reports/no-trace.md \
		test/run --build=$(BUILD) --only=scenario --files test_no_trace.py

# An image with as many files as one may have; `make test` has 20,000. Writes docs/reports/million-files.md.
million-files:
	@CAY_MANY_FILES=full CAY_MANY_FILES_REPORT=$(CURDIR)/docs/reports/million-files.md \
		test/run --build=$(BUILD) --only=scenario --files test_template_many_files.py

install: build
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) build-asan build-gcc build-clang build-fuzz build-fuzz-cov build-escapes
