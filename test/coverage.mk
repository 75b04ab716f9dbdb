# Counts the lines of the product that tests run. Processes that are killed report nothing, so the result is a lower
# bound.
COVERAGE_PARTS ?= check-unit check-multi check-admission check-tools check-top check-preload-memory check-preload check-preload-host check-runtime
COVERAGE = OPT="-O0 -g -fprofile-abs-path" CC="$(CC) --coverage"
.PHONY: coverage
coverage: ## line coverage of shm/, preload/ and tools/ by the tests that end by themselves
	@test/install-deps.sh gcovr
	@$(MAKE) --no-print-directory $(JOBS) BUILD=$(BUILD)/coverage $(COVERAGE) all
	@for part in $(COVERAGE_PARTS); do $(MAKE) --no-print-directory BUILD=$(BUILD)/coverage \
		$(COVERAGE) $$part >$(BUILD)/coverage/$$part.log 2>&1 || echo "coverage: $$part failed"; done
	@gcovr --root . --filter 'shm/' --filter 'preload/' --filter 'tools/' --object-directory $(BUILD)/coverage \
		--gcov-ignore-parse-errors --txt $(BUILD)/coverage/lines.txt --print-summary
