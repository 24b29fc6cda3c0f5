# The front door. CMake builds; this file names what people and the build server ask for.
#   make               release build: build/release/collapipe
#   make demo          the main job: installs what is missing, builds, makes and trains the example
#   make check-quick   release build and all its tests (3 minutes)
#   make check         what the build server runs: adds sanitizers, clang, format, lint
#   make check-long    adds fuzzing, repetition and lint of every file (an hour)
#   make bench         accuracy beside PyTorch on the same shards (an hour)
#   make format, make clean
JOBS ?= 2
DEMO ?= demo
BIN = build/release/collapipe

.PHONY: all build demo check check-quick check-long bench format clean

all: build

build:
	@tools/deps build
	@cmake --preset release -Wno-dev --log-level=WARNING > /dev/null
	@cmake --build --preset release -j $(JOBS)

demo:
	@tools/deps demo
	@$(MAKE) --no-print-directory build
	@test -e $(DEMO) || $(BIN) new $(DEMO)
	@$(BIN) run $(DEMO)

check check-quick check-long:
	@tools/deps check
	@JOBS=$(JOBS) tools/check $(subst check,full,$(subst check-,,$@))

bench: build
	@tools/deps bench
	@bash bench/compare.sh $(BIN) build/bench

format:
	@tools/deps check
	@find src app include tests -name '*.[ch]' -exec clang-format -i {} +

clean:
	rm -rf build
