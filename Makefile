# The usual steps by their usual names. Meson does the work; see CONTRIBUTING.md.

BUILD   ?= build
PREFIX  ?= /usr/local
DESTDIR ?=
SETTINGS ?=
FUZZ_SECONDS ?= 20
BENCH_SECONDS ?= 20
HOSTILE_MESSAGES ?= 1000000

CAY = $(BUILD)/src/cli/cay

.PHONY: all build up down test escapes check asan fuzz hostile bench install clean

all: build

build: $(BUILD)/build.ninja
	ninja -C $(BUILD)

$(BUILD)/build.ninja:
	meson setup $(BUILD) --prefix=$(PREFIX)

# A server that runs is said so at once, before anything is installed or built.
up:
	@if [ -x $(CAY) ] && $(CAY) up --check $(SETTINGS); then exit 0; fi; \
	scripts/deps build run && $(MAKE) --no-print-directory build && $(CAY) up $(SETTINGS)

down:
	@if [ -x $(CAY) ]; then $(CAY) down $(SETTINGS); else echo "cay is not built, so nothing of it runs"; fi

test:
	@test/run --build=$(BUILD)

check:
	@scripts/check

# Every escape with every positive control; writes docs/security-tests.md. A quick form is part of `make test`.
escapes:
	@scripts/deps build run test
	@[ -e build-escapes/build.ninja ] || meson setup build-escapes -Dtest_switches=true
	@ninja -C build-escapes
	@test/escapes/run.py --build=build-escapes --write=docs/security-tests.md

asan:
	@test/run --build=build-asan --sanitize --only=unit,scenario

fuzz:
	@FUZZ_SECONDS=$(FUZZ_SECONDS) scripts/fuzz

# A million hostile messages to privd; `make test` sends some.
hostile:
	@CAY_HOSTILE_MESSAGES=$(HOSTILE_MESSAGES) test/run --build=$(BUILD) --only=scenario --files test_hostile.py

bench:
	@scripts/deps build run
	@$(MAKE) --no-print-directory build
	@BENCH_SECONDS=$(BENCH_SECONDS) scripts/bench $(BUILD)

install: build
	DESTDIR=$(DESTDIR) meson install -C $(BUILD) --no-rebuild

clean:
	rm -rf $(BUILD) build-asan build-gcc build-clang build-fuzz build-fuzz-cov build-escapes
