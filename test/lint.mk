# Checks of sources by programs: clang-format, clang-tidy (.clang-tidy), cppcheck, shellcheck.
LINT_C    = $(shell git ls-files 'shm/*.c' 'preload/*.c' 'tools/*.c')
LINT_ALL  = $(shell git ls-files '*.c' '*.h' | grep -v '^include/cuda_abi/')
LINT_SH   = $(shell git ls-files '*.sh')

.PHONY: format lint deps-lint check-lint check-clang
deps-lint:
	@test/install-deps.sh clang-format clang-tidy cppcheck shellcheck

format: ## give every C file the house's format (clang-format)
	@test/install-deps.sh clang-format
	@clang-format -i $(LINT_ALL)

lint: deps-lint check-lint ## install what is missing, then check-lint

# Uses the programs that are installed, and names those that are not.
CHECK += check-lint
check-lint: ## format, clang-tidy, cppcheck and shellcheck find nothing
	@test/lint.sh "$(LINT_ALL)" "$(LINT_C)" "$(LINT_SH)"

check-clang: ## everything builds with clang and every warning an error
	@test/install-deps.sh clang
	@$(MAKE) --no-print-directory $(JOBS) BUILD=$(BUILD)/clang CC=clang WERROR=1 all $(filter-out $(BUILD)/test/deadline,$(TESTS:$(BUILD)/%=$(BUILD)/clang/%))
