# Every target does its own set-up. `make` alone lists them.
.DEFAULT_GOAL := help
SHELL := /bin/bash
.SHELLFLAGS := -eu -o pipefail -c

# SwiftPM passes the enabled traits to the compiler in the order of a hash table: another order, and everything is
# built anew.
BUILD := SWIFT_DETERMINISTIC_HASHING=1 swift build
STRICT := -Xswiftc -warnings-as-errors
# For the builds of tests: other flags than the build before build everything anew.
FLAGS ?=
# 1: what cannot run here is a failure.
REQUIRE ?= $(TEST_REQUIRE)
export TEST_REQUIRE := $(REQUIRE)
RELEASE := .build/release/plimsoll
SHOP := .build/release/shop
BENCH := .build/release/plimsoll-bench
VM := Tests/VirtualMachine
CACHE_BENCH := Benchmarks/.build/release/cache-bench

WEB_DEMO := Tests/Ecosystem/.build/release/WebDemo
E2E_BENCH := Benchmarks/EndToEnd/.build/release/e2e-bench
REQUEST_BENCH := Benchmarks/Requests/.build/release/request-bench

.PHONY: help setup swift demo demo-web web-demo demo-elsewhere bench-service bench-end-to-end \
	bench-end-to-end-report e2e-bench demo-lifecycle demo-supervisor test test-all quick unit supervisor bundle \
	packages ecosystem-bundle platforms inert sanitize addresses threads histories mutants sim fuzz soak allocators ecosystem vm vm-peers check \
	contracts format bench bench-peers bench-hit-ratio bench-worth bench-adoption bench-hostile bench-evidence bench-requests bench-micro container-programs \
	bench-report bench-setup cache-bench stress docs clean

help: ## What there is
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/:.*## /|/' | awk -F'|' '{printf "make %-15s %s\n", $$1, $$2}'

swift:
	@command -v swift >/dev/null || { echo "Swift 6.2 or later is needed: https://www.swift.org/install/linux" >&2; exit 69; }

# The virtual machine's packages are the only ones beyond a toolchain. As root they are installed; otherwise the
# command is printed.
setup: swift
	@$(VM)/vm-run --check >/dev/null 2>&1 || $(VM)/vm-run --setup || echo "going on without the virtual machine" >&2
	@! $(VM)/vm-run --check >/dev/null 2>&1 || $(VM)/vm-run --systemd --check >/dev/null 2>&1 || $(VM)/vm-run --systemd --setup || \
		echo "going on without systemd in the virtual machine" >&2

$(RELEASE) $(SHOP) $(BENCH): swift
	$(BUILD) -c release --product $(@F)

demo: $(RELEASE) ## One service under one limit, without and with Plimsoll: a real kill, a real survival
	@$(RELEASE) demo --real || { status=$$?; [ $$status -eq 69 ] || exit $$status; $(MAKE) --no-print-directory demo-elsewhere; }

# Where no group can be made: in the virtual machine, else a simulation that says so.
demo-elsewhere:
	@if $(VM)/vm-run --check; then \
		echo "no group can be made here; in the virtual machine:"; mkdir -p out; \
		$(VM)/vm-run --mem 1G --timeout 180 --pull /tmp/out/demo.svg:out/demo.svg -- $(RELEASE) demo --real --limit 96M --seconds 30; \
	else $(RELEASE) demo --simulate; fi

# SwiftPM does not look for new files in a package that is depended on by path, unless the manifest is newer.
web-demo: swift
	@touch Tests/Ecosystem/Package.swift
	@PLIMSOLL_ALL=1 $(BUILD) -c release --package-path Tests/Ecosystem --product WebDemo >&2

demo-web: $(RELEASE) web-demo ## A web server within 256 MiB under load, with its status page; SECONDS_OF_LOAD=300
	@Tests/Ecosystem/Demo/run $(RELEASE) $(WEB_DEMO)

demo-supervisor: $(RELEASE) ## Three services under one limit, without a supervisor and with one
	$(RELEASE) demo supervisor

demo-lifecycle: $(RELEASE) ## A service taken through its life cycle, and drawn in out/lifecycle.svg
	$(RELEASE) demo lifecycle

# The last line tells how many tests ran in all parts. The lines before say what was left out, and why.
test: swift ## The usual tests, also in a virtual machine; REQUIRE=1: what cannot run here is a failure
	@Tests/parts --then vm

# A part that fails stops no other.
test-all: swift ## All tests: also allocators, sanitizers, histories, simulation, fuzzing, mutants, inert build, all boots, docs, soak
	@failed=""; \
	Tests/parts --also $(RELEASE) $(SHOP) $(BENCH) --then allocators vm ALL=1 CONFIGURATION=release \
		TORTURE_READS=2000000 || failed=" usual"; \
	for part in inert addresses threads histories sim fuzz docs "mutants LEAST=85 JOBS=2" "soak MINUTES=$${MINUTES:-10}"; do \
		echo "part $${part%% *}"; $(MAKE) --no-print-directory $$part || failed="$$failed $${part%% *}"; \
	done; \
	[ -z "$$failed" ] || { echo "failed parts:$$failed" >&2; exit 1; }; \
	echo "all parts passed"

# What a part needs built, unless that has just been done.
built = $(if $(BUILT),,$(1))

quick: swift ## The tests of the core but for long ones, built without any other package: some three minutes when cold
	PLIMSOLL_CORE=1 $(BUILD) --build-tests -debug-info-format none --scratch-path .build-quick
	Tests/tally --part quick env $(WIDTH) .build-quick/debug/plimsollPackageTests.xctest --testing-library swift-testing

bundle: swift
	$(BUILD) --build-tests $(FLAGS)

# The bundle runs by itself: `swift test` holds a lock on the build directory, so that two would run one after another.
# With all tests at once, those that start a process come to wait for it late, and Swift Testing polls meanwhile. With
# 16 at a time the run takes a fifth less processor time.
WIDTH := NO_COLOR=1 SWT_EXPERIMENTAL_MAXIMUM_PARALLELIZATION_WIDTH=16
BUNDLE := env $(WIDTH) .build/debug/plimsollPackageTests.xctest --testing-library swift-testing
unit: $(call built,bundle)
	Tests/tally --part unit $(BUNDLE) --skip PlimsollSupervisorTests

# In a process of their own: they start and kill children, and exit tests elsewhere wait for theirs without end beside
# a zombie that is not.
supervisor: $(call built,bundle)
	Tests/tally --part supervisor $(BUNDLE) --filter PlimsollSupervisorTests

# Installs packages. Lists that are missing, or name versions that are gone, are fetched first.
install = apt-get install -y --no-install-recommends $(1) || { apt-get update && apt-get install -y --no-install-recommends $(1); }

# Headers and libraries that the adapters are built with, and servers that their tests start. The first build takes
# minutes; `make test` leaves out AsyncHTTPClient's adapter and the web demo.
ECOSYSTEM_LIBRARIES := libpq-dev libsqlite3-dev libmemcached-dev libhiredis-dev libssl-dev
ECOSYSTEM_HEADERS = [ -e /usr/include/hiredis/hiredis.h ] && [ -e /usr/include/libmemcached/memcached.h ] && [ -e /usr/include/sqlite3.h ] && \
	[ -e /usr/include/openssl/hmac.h ] && { [ -e /usr/include/postgresql/libpq-fe.h ] || [ -e /usr/include/libpq-fe.h ]; }
ECOSYSTEM_SERVERS := postgresql redis-server memcached prometheus chromium
# Another malloc, which the tests of the heap's census start programs with.
HEAP_LIBRARIES := libjemalloc2
ECOSYSTEM_BUNDLE := env NO_COLOR=1 Tests/Ecosystem/.build/debug/plimsoll-ecosystemPackageTests.xctest
packages: setup
	@missing=""; for package in $(ECOSYSTEM_LIBRARIES) $(ECOSYSTEM_SERVERS) $(HEAP_LIBRARIES); do \
		dpkg -s $$package >/dev/null 2>&1 || missing="$$missing $$package"; done; \
	[ -z "$$missing" ] || { \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then $(call install,$$missing); \
		else echo "apt-get install -y --no-install-recommends$$missing"; echo "going on without" >&2; fi; }
	@command -v kubernetes-validate >/dev/null || { [ "$$(id -u)" = 0 ] && python3 -m pip install --quiet kubernetes-validate >/dev/null 2>&1; } || \
		{ echo "pip install kubernetes-validate"; echo "going on without" >&2; }

# SwiftPM does not look for new files in a package that is depended on by path, unless the manifest is newer. Most of
# this code is other packages', built once and never edited: whole modules without debug information take less time.
# ALL=1: AsyncHTTPClient, gRPC over HTTP/2 and the web demo as well, whose packages take minutes.
WHOLE := -Xswiftc -whole-module-optimization -Xswiftc -num-threads -Xswiftc 2 -debug-info-format none
ecosystem-bundle: packages
	@! $(ECOSYSTEM_HEADERS) || { touch Tests/Ecosystem/Package.swift; \
		$(if $(ALL),PLIMSOLL_ALL=1) $(BUILD) --build-tests --package-path Tests/Ecosystem $(WHOLE); }

ecosystem: $(call built,ecosystem-bundle) ## The adapters' tests against real servers; installs what they need as root
	@if $(ECOSYSTEM_HEADERS); then Tests/tally --part ecosystem $(ECOSYSTEM_BUNDLE) --testing-library swift-testing; \
	else Tests/tally --skip ecosystem $$(grep -rhw '@Test' Tests/Ecosystem/Tests | wc -l) "headers are missing: apt-get install $(ECOSYSTEM_LIBRARIES)"; fi

# Each in a build of its own, so that the usual one stays; without XCTest, whose runner leaks. Tests that measure malloc
# are skipped, also with REQUIRE=1. Left out are tests that limit locked memory or address space, which the sanitizers
# need themselves, or that read all of their memory. Leaks are looked for among the cache's tests: other tests end
# processes midway. The thread sanitizer runs the rooms whose tests start plimsoll-bench at most: it is told of mutexes.
# Tests of crashes and forks go on under it.
CACHE_TESTS := PlimsollTests.*Cache|CacheIndex|SlotBlock|GhostTable|ReaderSlot|AtomicCopy
LIMITED := VolatileProcessTests|PurgeableBufferProcessTests|SecretTests|SecretProcessTests
# Three services and a supervisor within 256 MiB: with the sanitizer's memory the kernel may kill the supervisor first.
PLAY := a real play reports
CORE_ROOMS := (PlimsollTests|PlimsollLinuxTests|PlimsollServiceTests|PlimsollFoundationTests|PlimsollHeapTests)\.
# Some tests compare addresses on the stack.
ADDRESSES = env ASAN_OPTIONS=detect_stack_use_after_return=0:handle_segv=0:detect_leaks=$(1) $(WIDTH) \
	.build-asan/debug/plimsollPackageTests.xctest --testing-library swift-testing
THREADS := env TSAN_OPTIONS="exitcode=0 die_after_fork=0 handle_segv=0 log_path=$(CURDIR)/out/tsan" $(WIDTH) \
	.build-tsan/debug/plimsollPackageTests.xctest --testing-library swift-testing
sanitize: addresses threads ## The tests under the address and thread sanitizers; the builds take minutes

addresses: export TEST_REQUIRE :=
addresses: swift
	$(BUILD) --build-tests --disable-xctest --sanitize=address --scratch-path .build-asan
	Tests/tally --part leaks $(call ADDRESSES,1) --filter '$(CACHE_TESTS)' --skip '$(LIMITED)'
	Tests/tally --part addresses $(call ADDRESSES,0) --skip '(PlimsollSupervisorTests|$(CACHE_TESTS)|$(LIMITED)|$(PLAY))'
	Tests/tally --part addresses-supervisor $(call ADDRESSES,0) --filter PlimsollSupervisorTests

# Beside the cache's tests only races fail, and a run that breaks off: that sanitizer is so slow that time limits pass.
threads: export TEST_REQUIRE :=
threads: swift
	$(BUILD) --build-tests --disable-xctest --sanitize=thread --scratch-path .build-tsan
	@mkdir -p out; rm -f out/tsan.*
	Tests/tally --part threads $(THREADS) --filter '$(CACHE_TESTS)' --skip '$(LIMITED)'
	for rooms in '$(CORE_ROOMS)' 'PlimsollLifecycleTests\.'; do \
		$(THREADS) --filter "$$rooms" --skip '$(CACHE_TESTS)|$(LIMITED)|EnvironmentFileTests|EnvironmentKernelTests' > out/threads.log 2>&1 || true; \
		grep 'Test run with' out/threads.log || { tail -n 5 out/threads.log; exit 1; }; \
	done
	@! cat out/tsan.* 2>/dev/null | grep -A 60 'WARNING: ThreadSanitizer' || { echo "out/tsan.* have these races" >&2; exit 1; }

# What other systems get, compiled and tested here: no volatile memory, no barriers, no source of readings. A build of
# its own. Tests of what that build leaves out are skipped, also with REQUIRE=1.
INERT := --scratch-path .build-inert -Xcc -DPLIMSOLL_INERT
inert: export TEST_REQUIRE :=
inert: swift ## The tests of the core in the inert build, which macOS and musl have; a second build
	$(BUILD) --build-tests $(INERT)
	$(BUILD) --target PlimsollService --scratch-path .build-inert-service -Xcc -DPLIMSOLL_INERT -Xswiftc -DPLIMSOLL_INERT
	swift test --skip-build $(INERT) --filter '(PlimsollTests|PlimsollLifecycleTests|PlimsollFoundationTests)\.'

# Each run has 5,000 histories of each number of threads, on a new seed.
histories: $(call built,bundle) ## Histories of caches, tokens and the gate on several threads, checked; RUNS=20 times 15,000
	@mkdir -p out; PLIMSOLL_RUNS=$${RUNS:-20} $(BUNDLE) --filter '(LinearizabilityTests|HistoryTests)' > out/histories.log 2>&1 || \
		{ grep -A3 'recorded an issue' out/histories.log; exit 1; }
	@awk '/^figure histories/ { sum[$$2] += $$3 } END { for (name in sum) print "figure", name, sum[name], "count" }' \
		out/histories.log | sort

# The build takes minutes, and each mutant seconds. Verdicts are kept in out/mutants.jsonl. Tests that cannot run here are
# skipped, also with REQUIRE=1.
mutants: export TEST_REQUIRE :=
mutants: swift ## Decisions changed one at a time: which changes do no tests notice? SAMPLE=100 SEED=1; AIMED=1; LEAST=85
	@$(BUILD) -c release --package-path Tests/Mutation --product mutate >&2
	@mkdir -p out; Tests/Mutation/.build/release/mutate --sample $${SAMPLE:-100} --seed $${SEED:-1} \
		--least $${LEAST:-0} --jobs $${JOBS:-1} $(if $(AIMED),--aimed)

# The library on simulated threads: its thread functions are replaced when the program is linked. In a build of its own,
# optimized, without checks of exclusive access, and with internal names visible. One thread runs at a time, so counts of
# references need no atomic instructions, and calls into the runtime are shorter where it is linked statically.
SIMULATED := plimsoll_thread_start plimsoll_parker_make plimsoll_parker_free plimsoll_park plimsoll_unpark
sim: swift ## Fleets of units and a supervisor on simulated threads and time: HOURS=20000 SEED=1
	@PLIMSOLL_SIM=1 $(BUILD) -c release -Xswiftc -enable-testing -Xswiftc -enforce-exclusivity=unchecked \
		-Xswiftc -Xfrontend -Xswiftc -assume-single-threaded --static-swift-stdlib -Xswiftc -cross-module-optimization \
		--scratch-path .build-sim --product plimsoll-sim \
		$(foreach name,$(SIMULATED),-Xlinker --wrap=$(name)) >&2
	@Tests/Simulation/run .build-sim/release/plimsoll-sim "$${HOURS:-20000}" "$${SEED:-1}"

# The parsers, all of it compiled for coverage in a build of its own. gold does not link libFuzzer.
fuzz: packages ## Random input for everything that is parsed; SECONDS_EACH=60
	@$(ECOSYSTEM_HEADERS) || echo "without spill-record: headers are missing: apt-get install $(ECOSYSTEM_LIBRARIES)" >&2
	@PLIMSOLL_FUZZ=1 $(BUILD) -c release --traits "default$$(! $(ECOSYSTEM_HEADERS) || echo ,Spill)" --scratch-path .build-fuzz --product plimsoll-fuzz \
		-Xswiftc -enable-testing -Xswiftc -sanitize=fuzzer -Xcc -fsanitize=fuzzer-no-link -Xswiftc -use-ld=lld >&2
	@Tests/Fuzz/run .build-fuzz/release/plimsoll-fuzz "$${SECONDS_EACH:-60}"

platforms: swift ## The C of the core compiled for macOS and musl, as far as that can be checked here
	Tests/tally --part platforms Tests/Platforms/check

allocators: swift ## Who owns malloc, in every way of linking and starting a program; installs libjemalloc-dev as root
	Tests/tally --part allocators Tests/Allocators/matrix

vm: setup $(call built,bundle) $(if $(ALL),container-programs) ## The tests on a real cgroup v2 system under software emulation; ALL=1: all situations
	@if reason=$$($(VM)/vm-run --check 2>&1); then Tests/tally --part vm $(VM)/suite; \
	else Tests/tally --skip vm $$($(VM)/suite --count) "$$reason"; fi

# A supervisor and four services within 256 MiB and some swap: a shortage every few minutes, a new units file each minute.
soak: setup $(RELEASE) ## A supervisor for hours in the virtual machine: what keeps growing? MINUTES=120
	@mkdir -p out/soak; if reason=$$($(VM)/vm-run --check 2>&1); then \
		$(VM)/vm-run --mem 1G --zram 128M --parent-max 256M --timeout $$(($${MINUTES:-120} * 60 + 600)) --pull /tmp/out:out/soak \
			--add $(VM)/soak --add $(RELEASE) -- soak "$${MINUTES:-120}"; \
	elif [ "$(REQUIRE)" = 1 ]; then echo "$$reason"; exit 1; else echo "skipped: $$reason"; fi

# As docs/operations/Dockerfile builds them.
container-programs: swift
	$(BUILD) -c release --static-swift-stdlib --package-path docs/examples/Pod --product pod
	$(BUILD) -c release --static-swift-stdlib --scratch-path .build-static --product plimsoll
	@$(VM)/vm-run --containers --check >/dev/null 2>&1 || $(VM)/vm-run --containers --setup || echo "going on without containers" >&2
	@mkdir -p out/container; strip -o out/container/pod docs/examples/Pod/.build/release/pod; strip -o out/container/plimsoll .build-static/release/plimsoll

# The same machine without and with swap, as two of them act on swap. Without huge pages, for which the kernel keeps
# 44 MiB free: a tenth of one so small.
# Twenty minutes; PEERS_VM="--runs 1" makes it shorter.
vm-peers: setup $(BENCH) ## Three services on a whole machine: kernel, earlyoom, systemd-oomd, supervisor
	@if $(VM)/vm-run --systemd --check; then for swap in "" "--zram 256M"; do \
		$(VM)/vm-run --systemd --mem 640M $$swap --append transparent_hugepage=never --timeout 3600 --add $(BENCH) --add $(VM)/peers -- peers --seconds 60 $(PEERS_VM); \
	done; else echo "skipped: systemd in the virtual machine cannot run here"; fi

check: swift ## What must hold before a commit: format, no warnings, all tests
	swift format lint --strict --recursive Package.swift Sources docs/examples Tests Benchmarks
	$(MAKE) test FLAGS="$(STRICT)"

contracts: swift ## Rewrite the tests' column of docs/Contracts.md from the names of the tests
	$(BUILD) --build-tests
	PLIMSOLL_WRITE_CONTRACTS=1 swift test --skip-build --filter ContractTests

format: swift ## Bring the sources into shape
	swift format --in-place --recursive Package.swift Sources docs/examples Tests Benchmarks

bench: $(BENCH) cache-bench ## Measure what the library costs; prints figure lines
	Benchmarks/run $(BENCH)
	@$(CACHE_BENCH) hit-ratio --traces "$${PLIMSOLL_TRACES:-}"
	Benchmarks/peers

bench-adoption: swift ## What it takes to depend on the library and to test it; half an hour
	Benchmarks/adoption

stress: $(RELEASE) ## Survival under memory pressure: without, reactive, volatile; prints figure lines
	$(RELEASE) stress --runs $${RUNS:-18} --limit $${LIMIT:-256M}

# SwiftPM does not look for new files in a package that is depended on by path, unless the manifest is newer.
cache-bench: swift
	@touch Benchmarks/Package.swift
	@$(BUILD) -c release --package-path Benchmarks --product cache-bench >&2

bench-peers: cache-bench ## PurgeableCache beside NSCache, dictionaries, Caffeine and TBB; PEERS="--rounds 3 ..."
	@Benchmarks/peers $(PEERS)

# Rows alone on standard output. The simulators that ours is compared with are tested first.
bench-hit-ratio: cache-bench ## Hit ratios beside the best possible and LRU; PLIMSOLL_TRACES=DIR
	@$(BUILD) --package-path Benchmarks --product plimsoll-benchmarksPackageTests >&2
	@swift test --package-path Benchmarks --skip-build --quiet >&2
	@$(CACHE_BENCH) hit-ratio --traces "$${PLIMSOLL_TRACES:-}"

bench-service: $(BENCH) web-demo ## What the service costs: middleware, admin socket, end, the least program
	@$(WEB_DEMO) bench
	@$(BENCH) admin || [ $$? -eq 69 ]
	@$(BENCH) service
	@Tests/Minimal/measure

# SwiftPM does not look for new files in a package that is depended on by path, unless the manifest is newer.
e2e-bench: swift
	@touch Benchmarks/EndToEnd/Package.swift
	@$(BUILD) -c release --package-path Benchmarks/EndToEnd --product e2e-bench >&2

# Hours at full length; E2E="--limits 256M --loads burst-1 --variants fixed-25,plimsoll --runs 2" makes it minutes.
# Every run is kept at once in E2E_RUNS, and a
# comparison that broke off goes on with the same E2E_RUNS. The report is tested first.

E2E_RUNS ?= out/end-to-end-$(shell date +%Y%m%d-%H%M%S).jsonl
bench-end-to-end: $(RELEASE) e2e-bench ## One real service with and without Plimsoll under a limit
	@$(BUILD) --package-path Benchmarks/EndToEnd --product plimsoll-end-to-endPackageTests >&2
	@swift test --package-path Benchmarks/EndToEnd --skip-build --quiet >&2
	@unset TEST_REQUIRE; mkdir -p out; runs="$(E2E_RUNS)"; echo "runs are kept in $$runs" >&2; \
	$(E2E_BENCH) compare --plimsoll $(RELEASE) --json "$$runs" $(E2E) >&2 && $(E2E_BENCH) report --json "$$runs" || [ $$? -eq 69 ]

# Runs that are kept in the repository, so that its table and chart can be made again.
E2E_KEPT := docs/benchmarks/end-to-end.jsonl
bench-end-to-end-report: e2e-bench cache-bench ## Draw runs of bench-end-to-end into docs/benchmarks; E2E_RUNS=FILE
	@mkdir -p out; runs="$(if $(filter file,$(origin E2E_RUNS)),$(E2E_KEPT),$(E2E_RUNS))"; \
	$(E2E_BENCH) report --json "$$runs" --page docs/benchmarks/end-to-end.md --panels out/end-to-end-panels.json | grep '^figure '; \
	$(CACHE_BENCH) report --end-to-end out/end-to-end-panels.json --into docs/benchmarks

# Long, nearly all of it the kills: HOSTILE="--parts descriptor,log,flood" leaves them out, HOSTILE="--stride 10"
# makes a tenth of them.
bench-hostile: $(BENCH) ## A supervisor among hostile processes, and killed at every system call
	@$(BENCH) hostile $(HOSTILE) || [ $$? -eq 69 ]

bench-evidence: $(BENCH) ## Services with a black box, killed at random moments, and what their records tell
	@$(BENCH) evidence || [ $$? -eq 69 ]
	@$(BENCH) heap
	@$(MAKE) --no-print-directory bench-requests

bench-requests: $(RELEASE) ## Budgets of requests: one of 1 GiB among 200 clients, errors, cost; needs libjemalloc-dev and wrk
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then $(call install,libjemalloc-dev wrk); fi >&2
	@touch Benchmarks/Requests/Package.swift
	@$(BUILD) -c release --package-path Benchmarks/Requests --product request-bench >&2
	@$(REQUEST_BENCH) survive --plimsoll $(RELEASE) $(if $(DRAWING),--drawing "$(DRAWING)")
	@$(REQUEST_BENCH) error
	@$(REQUEST_BENCH) throughput --plimsoll $(RELEASE)
	@$(BUILD) -c release --package-path Benchmarks/Requests --product web-server >&2
	@$(REQUEST_BENCH) foreign --plimsoll $(RELEASE) --web-server $(dir $(REQUEST_BENCH))web-server

bench-worth: $(BENCH) ## Memory divided among caches by worth, in proportion, and as well as can be; MIX=FILE, DRAWING=FILE
	@$(BENCH) worth $${PLIMSOLL_TRACES:+--traces "$$PLIMSOLL_TRACES"} $(if $(MIX),--mix "$(MIX)") $(if $(DRAWING),--drawing "$(DRAWING)")
	@$(if $(MIX)$(DRAWING),:,$(BENCH) worth --machine || [ $$? -eq 69 ])

bench-micro: swift ## Instructions, time and memory of each of the cache's operations; the first build takes minutes
	swift package --package-path Benchmarks --disable-sandbox benchmark --target CacheMicro --no-progress

bench-report: cache-bench ## Draw races and hit ratios into docs/benchmarks
	@mkdir -p out
	@Benchmarks/peers --properties insert,bytes,purge --results out/cache-peers.json $(PEERS)
	@$(CACHE_BENCH) hit-ratio --traces "$${PLIMSOLL_TRACES:-}" --results out/cache-hit-ratios.json
	@$(CACHE_BENCH) report --peers out/cache-peers.json --hit-ratios out/cache-hit-ratios.json --into docs/benchmarks

# Peers that are not part of Swift. Without them the others race alone.
BENCH_PACKAGES := libcaffeine-java default-jdk-headless libtbb-dev g++ zstd
bench-setup: ## The optional peers: as root they are installed, otherwise the command is printed
	@if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then $(call install,$(BENCH_PACKAGES)); \
	else echo "apt-get install -y $(BENCH_PACKAGES)"; fi

docs: swift ## The documentation as a site in out/docs, without a warning
	docs/build

clean: ## Remove what was built
	rm -rf .build Benchmarks/.build Benchmarks/EndToEnd/.build Benchmarks/Requests/.build Tests/Ecosystem/.build Tests/Minimal/.build Tests/Mutation/.build .build-mutants docs/examples/Pod/.build out
