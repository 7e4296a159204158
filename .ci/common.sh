# Sourced by every step. Changes to the repository's root, and sets variables and functions for all steps.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

# Each build runs once, so incremental compilation only costs time.
export CARGO_INCREMENTAL=0
# The packages outside the crate share its target directory, so that common dependencies are compiled
# once.
export CARGO_TARGET_DIR="${CARGO_TARGET_DIR:-$PWD/target}"
# Cargo plugins that a step installs.
tools="$CARGO_TARGET_DIR/tools"
export PATH="$tools/bin:$PATH"

# The packages that are not part of the crate.
packages=(
  src/attributes benches/peers benches/peers/parser benches/peers/pyroscope_server tests/storm tests/rules tests/plugin tests/early tests/pools tests/fuzz
  examples/axum_server examples/criterion_profiler examples/lua_rules examples/marker_gallery examples/tokio_tracing examples/view
)

skip() {
  printf '\n!!! SKIPPED: %s\n\n' "$1"
  exit 0
}

has_nightly() { cargo +nightly --version >/dev/null 2>&1; }

# require_tool NAME: installs the Cargo plugin NAME unless it is installed. If it cannot be fetched, skips
# the step.
require_tool() {
  cargo "$1" --version >/dev/null 2>&1 && return
  cargo install --quiet --debug --locked --root "$tools" "cargo-$1" && return
  skip "cargo-$1 is not installed and cannot be fetched"
}

# without_optimized_dependencies PROFILE: prints the value of a --config option that turns off the
# optimization of dependencies. An instrumented build compiles them again, and optimizing them would
# only cost time.
without_optimized_dependencies() { printf 'profile.%s.package."*".opt-level=0' "$1"; }
