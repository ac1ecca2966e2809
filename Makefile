# make demo    the whole path on real data, in about a minute after the first set-up
# make test    style, types, import contracts and every test that is short
# make test-services  the tests that take long, then Spark with servers and executors of their own,
#              killed drivers, HDFS, Ceph and Chromium
# make setup   the environment without Spark and servers, for work on files and tables
#              (make setup-spark: with them; the other targets do what they need)
# make lint    style, types and import contracts alone
# make soak    the slow tests, hours of them; writes the table of docs/reliability.md
# make fuzz    readers under bytes of a coverage-guided fuzzer, SECONDS for each target
# make sanitize  the tests of the file format, kernels under AddressSanitizer and UBSan
# make test-paimon  primary-key tables beside Apache Paimon's Java engine, from Maven Central
# make test-flink  the connector for Apache Flink, in an environment of its own
#              (make flink: its jar, built by Maven)
# make test-pypaimon  tables of Paimon that pypaimon reads and writes, which wants an older pyarrow
# make test-sparks  the most important tests on older versions of Spark, each in its environment;
#              SPARKS=4.0 on one of them
# make test-mirrors  mirrors of tables, read by DuckDB, by Spark with the jars of Delta and Iceberg,
#              and by Flink with Paimon's
# make bench   the benchmarks, beside other formats and tables; an hour alone on two cores
#              (make bench-quick: the same smaller, in three minutes after the first set-up)
# make test-clients  the server of SQL, asked by JDBC and by Go
# make test-recipes  the documentation's pages on other libraries, with PyTorch, Ray, Delta and others
# make docs    the documentation as a site, in build/site; links that lead nowhere are errors
# make clean   removes what the others made
#
# Each sets up .venv by itself; the second run finds it ready. PYTHON, CC and JAVA_HOME choose
# other programs than the ones found on the path; TABLE=directory is where the demo puts its table.

VENV := .venv
RUN := $(VENV)/bin
READY := $(VENV)/ready
SPARK_READY := $(VENV)/ready-spark
SPARK_CLASSES := build/spark-classes.jsa
BENCH := .venv-bench
BENCH_READY := $(BENCH)/ready
PAIMON := .venv-bench-paimon
PYPAIMON := .venv-pypaimon
PYPAIMON_READY := $(PYPAIMON)/ready
PAIMON_JAR := flink_ext/java/paimon/target/paimon-fermion.jar
# The newest engine of Maven Central is in the connector for Flink 2.0, which needs no Flink itself.
PAIMON_ENGINE := org/apache/paimon/paimon-flink-2.0/2.0.0 org/slf4j/slf4j-api/2.0.9 \
	org/apache/hadoop/hadoop-client-api/3.3.6 org/apache/hadoop/hadoop-client-runtime/3.3.6
RECIPES := .venv-recipes
RECIPES_READY := $(RECIPES)/ready
DOCS := .venv-docs
DOCS_READY := $(DOCS)/ready
SPARK35 := .venv-spark35
FLINK := .venv-flink
FLINK_READY := $(FLINK)/ready
FLINK_VERSION := 2.3.0
FLINK_JAR := flink_ext/java/flink/target/flink-fermion.jar
FLINK_SOURCES := $(shell find flink_ext/java -name target -prune -o -type f -print 2>/dev/null)
# The versions of PySpark besides that of $(VENV), whose other packages their environments share.
SPARK_40 := 4.0.5
SPARK_41 := 4.1.4
SPARK_42 := 4.2.1
SPARKS := 4.0 4.1 4.2
PAIMON_READY := $(SPARK35)/paimon-ready
MIRRORS := .venv-mirrors
MIRRORS_READY := $(MIRRORS)/ready
PACKAGES := fermion fermion_table spark_ext flink_ext
EXTRAS := polars,duckdb,pandas,cli
SPARK_EXTRAS := spark s3 hdfs
# Printed for pip, which would compile the kernels again if it were asked for the extras themselves.
PACKAGES_OF_EXTRAS := import sys, tomllib; \
	extras = tomllib.load(open("pyproject.toml", "rb"))["project"]["optional-dependencies"]; \
	print(*(package for extra in sys.argv[1:] for package in extras[extra]), sep="\n")
KERNELS := $(wildcard fermion/kernels/*.pyx fermion/kernels/*.h fermion/kernels/*/*.pxi)

LINT := $(RUN)/ruff check . && $(RUN)/ruff format --check . && $(RUN)/mypy && $(RUN)/lint-imports

.PHONY: help demo test test-mirrors test-services lint soak fuzz sanitize paimon test-paimon flink test-flink paimon-jar test-pypaimon test-clients test-recipes test-sparks bench bench-quick bench-training bench-small bench-paimon bench-flink docs clean setup setup-spark java
.DEFAULT_GOAL := help

help:
	@sed -n 's/^# //p' Makefile | head -n 24

demo: java setup-spark
	@$(RUN)/python examples/quickstart.py $(TABLE)

# Every part runs, so that a finding of style does not hide a failing test. Two processes share the
# tests; of those with Spark each takes whole files, one after the other, and has a session of its
# own: jobs this small mostly wait for one thread. The parts do not run at once: that took no less
# time on two cores, and Spark waits 10 s for a Python worker and no longer. (No recursive make:
# `make -n` runs those.)
WITH_SPARK := tests/spark_ext tests/claims/spark_ext tests/test_examples.py tests/test_readme.py
test: java setup-spark $(SPARK_CLASSES)
	@failed=; \
	{ $(LINT); } || failed="$$failed lint"; \
	$(RUN)/python -m pytest -q -m "not spark and not long and not slow and not services" -n 2 tests || failed="$$failed tests"; \
	$(RUN)/python -m pytest -q -m "spark and not long and not slow and not services" -n 2 --dist loadfile $(WITH_SPARK) || failed="$$failed spark"; \
	[ -z "$$failed" ] || { echo "make test: failed in:$$failed" >&2; exit 1; }

# First what make test left out: many seeds and processes, whole matrices, streams of Spark. Then the
# servers: a file after the other to each of two processes, too; what shares one HDFS, and one Ceph.
ON_HDFS := tests/claims/spark_ext/test_hdfs.py
ON_CEPH := tests/claims/spark_ext/test_s3.py
test-services: java setup-spark $(SPARK_CLASSES)
	@failed=; \
	$(RUN)/python -m pytest -q -m "long and not spark and not slow and not services" -n 2 tests || failed="$$failed long"; \
	$(RUN)/python -m pytest -q -m "long and spark and not slow and not services" -n 2 --dist loadfile $(WITH_SPARK) || failed="$$failed long-spark"; \
	$(RUN)/python -m pytest -q -m "services and not slow" -n 2 --dist loadfile tests/spark_ext tests/claims/spark_ext --ignore=$(ON_HDFS) --ignore=$(ON_CEPH) || failed="$$failed spark"; \
	$(RUN)/python -m pytest -q -m "services and not slow" tests/hdfs $(ON_HDFS) || failed="$$failed hdfs"; \
	$(RUN)/python -m pytest -q -m "services and not slow" tests/s3 $(ON_CEPH) || failed="$$failed s3"; \
	$(RUN)/python -m pytest -q -m "services and not slow" tests/browser || failed="$$failed browser"; \
	$(RUN)/python -m pytest -q -m "services and not slow" tests/clients || failed="$$failed clients"; \
	[ -z "$$failed" ] || { echo "make test-services: failed in:$$failed" >&2; exit 1; }

lint: setup
	@$(LINT)

# First the reliability tests, whose results go into docs/reliability.md, sanitizers and fuzzers too,
# then the other slow ones. What was stopped goes on where it was: see tests/soak.py.
SOAKED := $(addprefix --ignore=tests/claims/,fermion/test_corruption.py \
	$(addprefix fermion_table/test_,hostile_metadata.py simulation.py keyed_simulation.py \
	catalog_simulation.py transaction_simulation.py killed_processes.py crowd.py resource_bounds.py training_resumes.py))

soak: java setup-spark
	@$(RUN)/python -m pip install -qq --disable-pip-version-check --group fuzz
	@$(RUN)/python -m tests.soak
	@HYPOTHESIS_PROFILE=soak $(RUN)/python -m pytest -q -m slow tests $(SOAKED)

# Beside the other formats that pypaimon writes.
bench-paimon: $(PYPAIMON_READY)
	@$(PYPAIMON)/bin/python -m pip install -qq --disable-pip-version-check "vortex-data>=0.90" "paimon-mosaic>=0.2" "tpchgen-cli>=4.0"
	@$(PYPAIMON)/bin/python -m benchmarks.paimon_formats

bench: $(BENCH_READY)
	@$(BENCH)/bin/python -m benchmarks
	@$(BENCH)/bin/python -m benchmarks.scaling
	@$(BENCH)/bin/python -m benchmarks.profiles
	@$(BENCH)/bin/python -m benchmarks.summary

# One engine after the other, each in a JVM of its own.
bench-flink: java setup $(FLINK_READY) $(FLINK_JAR) $(PYPAIMON_READY)
	@$(PYPAIMON)/bin/python -m tools.maven_jars $(PYPAIMON)/jars $(PAIMON_ENGINE)
	@$(FLINK)/bin/python -m benchmarks.flink fermion --python $(abspath $(RUN)/python) --jars $(FLINK_JAR)
	@$(FLINK)/bin/python -m benchmarks.flink paimon --jars $(PYPAIMON)/jars/*.jar

# MosaicML's StreamingDataset and LanceDB's, with PyTorch: some gigabytes, and an older NumPy.
BENCH_TRAINING := .venv-bench-training

bench-training: $(BENCH_READY) $(BENCH_TRAINING)/ready
	@$(BENCH)/bin/python -m benchmarks.training
	@$(BENCH)/bin/python -m benchmarks.training_joins

$(BENCH_TRAINING)/ready: pyproject.toml
	@python=$$(tools/prerequisites python) && \
	echo "Setting up $(BENCH_TRAINING) with $$python; PyTorch alone is some gigabytes" && \
	{ [ -x $(BENCH_TRAINING)/bin/python ] || "$$python" -m venv $(BENCH_TRAINING); }
	@$(BENCH_TRAINING)/bin/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BENCH_TRAINING)/bin/python -m pip install -qq --disable-pip-version-check --group bench-training
	@touch $@

# DuckLake's extensions are packages for one version of DuckDB.
BENCH_DUCKLAKE := .venv-bench-ducklake

bench-small: $(BENCH_READY) $(BENCH_DUCKLAKE)/ready
	@$(BENCH)/bin/python -m benchmarks.small_commits

$(BENCH_DUCKLAKE)/ready: pyproject.toml
	@python=$$(tools/prerequisites python) && \
	{ [ -x $(BENCH_DUCKLAKE)/bin/python ] || "$$python" -m venv $(BENCH_DUCKLAKE); }
	@$(BENCH_DUCKLAKE)/bin/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BENCH_DUCKLAKE)/bin/python -m pip install -qq --disable-pip-version-check --group bench-ducklake
	@touch $@

bench-quick: $(BENCH_READY)
	@$(BENCH)/bin/python -m benchmarks --size quick

# One target after the other; what it finds lies in build/fuzz/TARGET/crash-*.
SECONDS := 60
FUZZ_TARGETS := file snapshot manifest schema reference deletion_vector type_text filter_text json_events

fuzz: setup
	@$(RUN)/python -m pip install -qq --disable-pip-version-check --group fuzz
	@for target in $(FUZZ_TARGETS); do \
		echo "fuzzing $$target for $(SECONDS) s"; \
		$(RUN)/python -m tests.fuzz $$target $(SECONDS) || exit 1; \
	done

sanitize: setup
	@HYPOTHESIS_PROFILE=ci tools/sanitize $(abspath $(RUN)/python) -n 2 tests/fermion tests/claims/fermion

# Paimon's Java engine in an environment of its own, which wants an older PySpark; HISTORIES of each
# case are drawn.
HISTORIES := 4

paimon: java $(PAIMON_READY)

test-paimon: setup-spark paimon
	@PAIMON_HISTORIES=$(HISTORIES) $(RUN)/python -m pytest -q -m slow tests/paimon

# Maven keeps what it loads in .maven; a second run needs no network.
flink: $(FLINK_JAR)

test-flink: java setup-spark $(FLINK_READY) $(FLINK_JAR) $(PAIMON_JAR)
	@$(RUN)/python -m tools.maven_jars $(PYPAIMON)/jars $(PAIMON_ENGINE)
	@$(RUN)/python -m pytest -q -m slow tests/flink

# The jar alone: make paimon-jar. Without Java and Maven the tests of pypaimon run.
paimon-jar: $(PAIMON_JAR)

test-pypaimon: $(PYPAIMON_READY)
	@$(MAKE) --no-print-directory paimon-jar && \
		$(PYPAIMON)/bin/python -m tools.maven_jars $(PYPAIMON)/jars $(PAIMON_ENGINE) || \
		echo "make test-pypaimon: goes on without Paimon's Java engine" >&2
	@$(PYPAIMON)/bin/python -m pytest -q tests/fermion_table/paimon tests/flink_ext/test_paimon_java.py \
		tests/fermion_table/mirrors/test_paimon.py tests/fermion_table/mirrors/test_target.py tests/claims/fermion_table/test_mirrored_histories.py

test-clients: java setup
	@$(RUN)/python -m pytest -q -m "services or slow" tests/clients

# DuckDB 1.4.4 is the newest with its extensions as packages; Spark 3.5 that with jars of all formats.
test-mirrors: java setup $(MIRRORS_READY) $(FLINK_READY) $(PYPAIMON_READY)
	@$(RUN)/python -m benchmarks.rival_spark delta iceberg
	@$(PYPAIMON)/bin/python -m tools.maven_jars $(PYPAIMON)/jars $(PAIMON_ENGINE)
	@failed=; \
	$(RUN)/python -m pytest -q -m "slow or not slow" tests/mirrors -k "not flink" || failed=yes; \
	$(PYPAIMON)/bin/python -m pytest -q -m slow tests/mirrors -k flink || failed=yes; \
	[ -z "$$failed" ]

test-recipes: $(RECIPES_READY)
	@$(RECIPES)/bin/python -m pytest -q tests/fermion/training/test_torch_dataset.py tests/test_readme.py \
		tests/fermion_table/training/test_consumers.py \
		tests/fermion_table/scanning/test_arrow_dataset.py tests/test_examples.py \
		-k "torch_dataset or consumers or other_libraries or train_model or datafusion"

# What every user needs, the README, the page on Spark and the demo. Two files at once: each has a JVM.
ON_SPARKS := $(addprefix tests/spark_ext/,test_versions.py test_types.py datasource writing/test_append.py \
	writing/test_save.py writing/test_new_table.py catalog/test_frames.py reading/test_changes.py reading/test_blobs.py reading/test_variant.py \
	maintenance/test_compaction.py merging/test_builder.py catalog/test_row_level.py \
	catalog/test_aggregates.py catalog/test_metadata_tables.py catalog/test_procedures.py \
	catalog/test_change_feed.py catalog/test_sessions.py) \
	$(addprefix tests/claims/spark_ext/,test_catalog.py test_upsert.py test_upserts_of_streams.py \
	test_overwrite.py test_ways_to_read.py test_connect.py)
PAGES_ON_SPARKS := tests/claims/spark_ext/test_examples.py tests/test_examples.py -k "test_the_code or quickstart"

test-sparks: java $(foreach series,$(SPARKS),.venv-spark$(subst .,,$(series))/ready)
	@failed=; export PATH="$(abspath $(RUN)):$$PATH"; \
	for series in $(subst .,,$(SPARKS)); do \
		python=.venv-spark$$series/bin/python; \
		$$python -m pytest -q -m "not slow" -n 2 --dist loadfile $(ON_SPARKS) || failed="$$failed $$series"; \
		$$python -m pytest -q -m "not slow" $(PAGES_ON_SPARKS) || failed="$$failed pages-$$series"; \
	done; \
	[ -z "$$failed" ] || { echo "make test-sparks: failed in:$$failed" >&2; exit 1; }

docs: $(DOCS_READY)
	@NO_MKDOCS_2_WARNING=1 $(DOCS)/bin/mkdocs build --quiet --strict && echo "build/site/index.html"

clean:
	rm -rf $(VENV) $(BENCH) $(BENCH_TRAINING) $(BENCH_DUCKLAKE) $(PAIMON) $(SPARK35) .venv-spark4? $(RECIPES) $(PYPAIMON) $(FLINK) $(DOCS) $(MIRRORS) .maven flink_ext/java/*/target benchmarks/cache build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	rm -rf .import_linter_cache spark-warehouse metastore_db derby.log
	rm -f fermion/kernels/*.so fermion/kernels/_compiled.c
	find $(PACKAGES) tests examples benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +

setup: $(READY)

setup-spark: $(SPARK_READY)

java:
	@tools/prerequisites java

# The stamp is touched last: a set-up that was interrupted starts again.
$(READY): pyproject.toml setup.py $(KERNELS)
	@python=$$(tools/prerequisites python) && \
	tools/prerequisites compiler "$$python" && \
	echo "Setting up $(VENV) with $$python; the first time takes a few minutes" && \
	{ [ -x $(RUN)/python ] || "$$python" -m venv $(VENV); }
	@$(RUN)/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1"
	@$(RUN)/python -m pip install -qq --disable-pip-version-check --editable ".[$(EXTRAS)]" --group dev
	@touch $@

$(SPARK_READY): $(READY)
	@echo "Adding Spark and the clients and servers of storages; PySpark alone is 450 MB"
	@$(RUN)/python -c '$(PACKAGES_OF_EXTRAS)' $(SPARK_EXTRAS) | \
		$(RUN)/python -m pip install -qq --disable-pip-version-check -r /dev/stdin --group services
	@touch $@

# What drivers load, for the tests, whose drivers then start in less CPU time.
$(SPARK_CLASSES): $(SPARK_READY)
	@$(RUN)/python -m tools.spark_classes $@ 2>/dev/null || echo "goes on without $@" >&2

# Its PySpark comes before that of $(VENV), whose packages it has besides; one with pandas 3, too.
PACKAGES_42 := "pandas>=3,<4"
.venv-spark%/ready: $(SPARK_READY) Makefile
	@echo "Setting up .venv-spark$* with PySpark $(SPARK_$*); it is 400 MB"
	@[ -x .venv-spark$*/bin/python ] || $(RUN)/python -m venv .venv-spark$*
	@place='import sysconfig; print(sysconfig.get_path("purelib"))'; \
	echo "import site; site.addsitedir('$$($(RUN)/python -c "$$place")')" \
		> "$$(.venv-spark$*/bin/python -c "$$place")/fermion.pth"
	@.venv-spark$*/bin/python -m pip install -qq --disable-pip-version-check --no-deps pyspark==$(SPARK_$*) $(PACKAGES_$*)
	@touch $@

# The rivals live apart from the environment that the tests run in; pypaimon apart from these, as it
# wants an older pyarrow.
$(BENCH_READY): pyproject.toml setup.py $(KERNELS)
	@python=$$(tools/prerequisites python) && \
	tools/prerequisites compiler "$$python" && \
	echo "Setting up $(BENCH) with $$python; the first time takes a few minutes" && \
	{ [ -x $(BENCH)/bin/python ] || "$$python" -m venv $(BENCH); } && \
	{ [ -x $(PAIMON)/bin/python ] || "$$python" -m venv $(PAIMON); }
	@$(BENCH)/bin/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1"
	@$(BENCH)/bin/python -m pip install -qq --disable-pip-version-check --editable ".[bench]"
	@$(PAIMON)/bin/python -m pip install -qq --disable-pip-version-check "pypaimon>=2.1"
	@touch $@

$(RECIPES_READY): pyproject.toml setup.py $(KERNELS)
	@python=$$(tools/prerequisites python) && \
	tools/prerequisites compiler "$$python" && \
	echo "Setting up $(RECIPES) with $$python; PyTorch alone is some gigabytes" && \
	{ [ -x $(RECIPES)/bin/python ] || "$$python" -m venv $(RECIPES); }
	@$(RECIPES)/bin/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1"
	@$(RECIPES)/bin/python -m pip install -qq --disable-pip-version-check --editable ".[polars,duckdb,pandas]" --group recipes
	@touch $@

# pypaimon wants an older pyarrow than the other tests run with.
$(PYPAIMON_READY): pyproject.toml setup.py $(KERNELS)
	@python=$$(tools/prerequisites python) && \
	tools/prerequisites compiler "$$python" && \
	echo "Setting up $(PYPAIMON) with $$python" && \
	{ [ -x $(PYPAIMON)/bin/python ] || "$$python" -m venv $(PYPAIMON); }
	@$(PYPAIMON)/bin/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1"
	@$(PYPAIMON)/bin/python -m pip install -qq --disable-pip-version-check --editable ".[paimon]" --group pypaimon
	@touch $@

# It reads the docstrings from the sources, so that nothing is compiled.
$(DOCS_READY): pyproject.toml
	@python=$$(tools/prerequisites python) && \
	echo "Setting up $(DOCS) with $$python" && \
	{ [ -x $(DOCS)/bin/python ] || "$$python" -m venv $(DOCS); }
	@$(DOCS)/bin/python -m pip install -qq --disable-pip-version-check --upgrade "pip>=25.1"
	@$(DOCS)/bin/python -m pip install -qq --disable-pip-version-check --group docs
	@touch $@

$(MIRRORS_READY): Makefile
	@python=$$(tools/prerequisites python) && \
	echo "Setting up $(MIRRORS) with $$python" && \
	{ [ -x $(MIRRORS)/bin/python ] || "$$python" -m venv $(MIRRORS); }
	@$(MIRRORS)/bin/python -m pip install -qq --disable-pip-version-check "duckdb==1.4.4" \
		duckdb-ext-avro==1.4.4.20260205 duckdb-ext-delta==1.4.4.20260205 duckdb-ext-iceberg==1.4.4.20260205
	@touch $@

$(PAIMON_READY): benchmarks/rival_spark.py
	@python=$$(tools/prerequisites python) && "$$python" -m benchmarks.rival_spark paimon paimon-java
	@touch $@

# PyFlink wants an older pyarrow than we do.
$(FLINK_READY): Makefile
	@python=$$(tools/prerequisites python) && \
	echo "Setting up $(FLINK) with $$python; Flink alone is 400 MB" && \
	{ [ -x $(FLINK)/bin/python ] || "$$python" -m venv $(FLINK); }
	@$(FLINK)/bin/python -m pip install -qq --disable-pip-version-check "apache-flink==$(FLINK_VERSION)"
	@touch $@

$(PAIMON_JAR): $(FLINK_SOURCES)
	@tools/prerequisites maven
	@echo "Building $@ with Maven; the first time it loads Paimon from Maven Central"
	@mvn -q -B -Dmaven.repo.local=.maven -f flink_ext/java/pom.xml -P paimon -pl paimon -am package
	@touch $@

$(FLINK_JAR): $(FLINK_SOURCES)
	@tools/prerequisites maven
	@echo "Building $@ with Maven; the first time it loads Flink's interfaces from Maven Central"
	@mvn -q -B -Dmaven.repo.local=.maven -Dflink.version=$(FLINK_VERSION) -f flink_ext/java/pom.xml package
	@cp $@ flink_ext/  # beside the package, for its wheel
	@touch $@
