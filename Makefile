# SPDX-License-Identifier: Apache-2.0
# The front door. `make demo` and `make test` need nothing but a Debian 12 with git, make and
# python3; everything else they install (as root or through sudo) or keep inside this checkout, but for
# the caches of pip and ccache.
SHELL := /bin/bash
.NOTPARALLEL:  # targets share .venv and build/

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "  make %-8s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

demo: build ## train LeNet on Fashion-MNIST with four workers and say what happened
	@scripts/demo.sh

test: setup ## everything: release, sanitizers (by clang too), a short fuzz run
	@scripts/test.sh

check: setup ## the quick tests, for daily work
	@scripts/test.sh check

soak: setup ## the tests at their full counts; takes hours
	@POSEIDON_CASES=all POSEIDON_DRILLS=100 POSEIDON_MUTATIONS=18000 POSEIDON_SEEDS=10000 POSEIDON_FUZZ_RUNS=10000000 \
	  POSEIDON_FEATURE_WORKERS=2,3,4 POSEIDON_FEATURE_STEPS=100 POSEIDON_TIMEOUT_FACTOR=200 scripts/test.sh release fuzz

golden: setup ## compare with golden cases: make golden DIR=folder
	@[ -n "$(DIR)" ] || { echo "golden: DIR is not set, expected make golden DIR=folder-of-cases" >&2; exit 2; }
	@scripts/build.sh release -DPOSEIDON_TESTS=ON poseidon_golden
	@build/release/bin/poseidon_golden "$(DIR)"

bench: build ## ratios and claims against the recorded ones (root, about 6 minutes), and what the trainer costs
	@scripts/setup.sh test
	@.venv/bin/python3 benchmarks/trainer_bench.py --pairs 100
	@worse=0; .venv/bin/python3 -B -m benchmarks.claims --compare || worse=1; \
	.venv/bin/python3 -B -m benchmarks.performance --compare || worse=1; exit $$worse

gpu: ## what one GPU shows, into docs/performance/gpu.md (eight minutes, on a machine that has one)
	@$$([ -x .venv/bin/python3 ] && echo .venv/bin/python3 || echo python3) -B -m benchmarks.gpu

cuda: ## what `make gpu` runs, built against torch's CUDA build (5 GB) for a machine that has only torch; TORCH=2.11.0 for another version
	@scripts/cuda.sh $(TORCH)

wheel: setup ## the Python wheels of core and trainer, into build/dist, tested where nothing else is installed
	@scripts/wheel.sh
	@scripts/wheel.sh --trainer
	@.venv/bin/python3 -B -m pytest -q -rs -p no:cacheprovider tests/wheel --wheel build/dist/poseidon_train-*.whl \
	  --trainer-wheel build/dist/poseidon_train_caffe-*.whl

site: ## the documentation as HTML, into build/site
	@scripts/setup.sh site
	@NO_MKDOCS_2_WARNING=1 .venv-site/bin/python3 -B -m mkdocs build --strict --quiet
	@echo build/site/index.html

build: ## the poseidon command, into build/release/bin, and the libraries of the front ends
	@scripts/setup.sh demo
	@scripts/build.sh release $(if $(wildcard build/release/CMakeCache.txt),,-DPOSEIDON_TESTS=OFF -DPOSEIDON_BENCHMARKS=OFF) poseidon poseidon_shared \
	  poseidon_caffe_shared poseidon_tensorflow

setup: ## install what building and testing need
	@scripts/setup.sh test

tidy: ## clang-tidy over the core
	@scripts/setup.sh develop
	@scripts/build.sh tidy

format: ## clang-format over the lines changed since the last commit
	@scripts/setup.sh develop
	@git-clang-format-14 --binary clang-format-14 --extensions h,cc,c --force HEAD

clean: ## remove what was built; .venv and demo/ stay
	rm -rf build

.PHONY: help demo test check soak golden bench cuda gpu wheel site build setup tidy format clean
