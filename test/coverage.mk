# Counts the lines of the product that tests run. Processes that are killed or end by _exit() report nothing, so the result is
# a lower bound. Children of the harness end by exit() here (T_COVERAGE). A few tests fail
# because counting changes what they look at (open files, the address of a caller); the others of that part run all the same.
COVERAGE_PARTS ?= check-unit check-multi check-admission check-tools check-top check-preload-memory check-preload \
	check-preload-host check-preload-limits check-runtime check-lease-programs check-follow check-checkpoint check-mig \
	check-traces check-python
COVERAGE = OPT="-O0 -g -fprofile-abs-path" CC="$(CC) --coverage" STATIC=
.PHONY: coverage
coverage: ## line coverage of shm/, preload/ and tools/ by the tests that end by themselves
	@test/install-deps.sh gcovr
	@$(MAKE) --no-print-directory $(JOBS) BUILD=$(BUILD)/coverage $(COVERAGE) all
	@for part in $(COVERAGE_PARTS); do T_COVERAGE=1 GCOV_ERROR_FILE=$(CURDIR)/$(BUILD)/coverage/gcov.log \
		$(MAKE) -k --no-print-directory BUILD=$(BUILD)/coverage \
		$(COVERAGE) $$part >$(BUILD)/coverage/$$part.log 2>&1 || echo "coverage: $$part failed"; done
	@gcovr --root . --filter 'shm/' --filter 'preload/' --filter 'tools/' --object-directory $(BUILD)/coverage \
		--gcov-ignore-parse-errors --txt $(BUILD)/coverage/lines.txt --print-summary
