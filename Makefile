# geoaccel_ros: `make demo` and `make test` do all the set-up that is missing.

PYTHON ?= python3
VENV := .venv
BIN := $(abspath $(VENV))/bin

NODES := lidar_odometry cloud_encoder cloud_decoder mppi_controller mujoco_simulation
INSTALLED := install/geoaccel_ros/lib/geoaccel_ros
BENCH_ARGS ?= --peers
MUTATIONS ?= 100000

# An environment given as `make test VENV=path` is the caller's: used as it is.
ifeq ($(origin VENV),file)
setup = $(PYTHON) tools/bootstrap.py
else
setup = @:
endif

.DEFAULT_GOAL := help
.PHONY: help setup demo test acceptance fuzz bench lint colcon launch-test clean

help:
	@echo 'make setup        make the environment in .venv; the others do it too'
	@echo 'make demo         drive the simulated robot through the yard [DEMO_ARGS=...]'
	@echo 'make test         run the tests [PYTEST_ARGS=...]'
	@echo 'make acceptance   robots in closed loop, for half an hour; writes docs/acceptance.md [ROWS=...] [SEEDS=n]'
	@echo 'make launch-test  run only the tests of the launch files; needs launch and launch_ros [PYTEST_ARGS=...]'
	@echo 'make fuzz         feed the point-cloud decoder damaged streams [MUTATIONS=100000]'
	@echo 'make bench        run the benchmarks beside their peers [BENCH_ARGS=--peers]'
	@echo 'make lint         check style'
	@echo 'make colcon       build and check the package as a workspace does: build/ install/ log/'
	@echo 'make clean        remove what was made here'
	@echo 'Variables: PYTHON (interpreter that makes .venv), VENV (an environment of your own)'

setup:
	$(setup) --dev

demo:
	$(setup)
	$(BIN)/geoaccel demo $(DEMO_ARGS)

test: setup
	$(BIN)/python -m pytest $(PYTEST_ARGS)

launch-test: setup
	$(BIN)/python -c 'import launch, launch_ros, launch_testing'
	$(BIN)/python -m pytest test/launch $(PYTEST_ARGS)

acceptance: setup
	PYTHONPATH=test $(BIN)/python -m acceptance $(if $(ROWS),--rows $(ROWS)) $(if $(SEEDS),--seeds $(SEEDS))

fuzz: setup
	$(BIN)/python tools/fuzz_codec.py --mutations $(MUTATIONS)

bench: setup
	@set -e; names=$$($(BIN)/python -c 'from geoaccel_ros.benchmark import BENCHMARKS as b; print(*b)'); \
	for name in $$names; do $(BIN)/geoaccel bench $$name $(BENCH_ARGS); echo; done

lint: setup
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

colcon: setup
	PATH=$(BIN):$$PATH colcon build --packages-select geoaccel_ros
	@set -e; for name in geoaccel $(NODES); do \
		test -x $(INSTALLED)/$$name || { echo "not installed: $(INSTALLED)/$$name"; exit 1; }; done
	PATH=$(BIN):$$PATH sh -c '. install/setup.sh && $(INSTALLED)/geoaccel --version'

clean:
	rm -rf .venv build install log dist *.egg-info .pytest_cache .ruff_cache .hypothesis demo_output
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
