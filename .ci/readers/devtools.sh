# Sourced by the readers of Chrome's formats. Puts DevTools' own models, as one module, to $devtools, and the Node
# that runs them to $node. Prints SKIPPED and exits with 0 if they cannot be had.
root="$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)"
frontend_version=1.0.1705227
esbuild_version=0.25.12
devtools_dir="$root/target/readers/devtools"
devtools="$devtools_dir/devtools.$frontend_version.mjs"
node="$root/target/readers/node_modules/.bin/node"

skip() {
    printf '\n!!! SKIPPED: %s\n\n' "$1"
    exit 0
}

status=0
"$root/.ci/install-readers" >/dev/null || status=$?
((status != 75)) || skip "npm has no network, so no file was opened in DevTools' models"
((status == 0)) || exit "$status"

if [[ ! -f $devtools ]]; then
    echo "installing the models of chrome-devtools-frontend $frontend_version"
    mkdir -p "$devtools_dir"
    # The install scripts are needed by no part of these packages.
    timeout 300 npm install --prefix "$devtools_dir" --ignore-scripts --no-save --no-package-lock --no-audit --no-fund \
        --engine-strict=false --loglevel=error --fetch-retries=1 \
        "chrome-devtools-frontend@$frontend_version" "esbuild@$esbuild_version" >/dev/null ||
        skip "npm cannot install chrome-devtools-frontend, so no file was opened in DevTools' models"
    (cd "$devtools_dir" && "$node" "$root/.ci/readers/bundle-devtools.mjs" "$devtools")
    # The bundle is all that is needed, and the package takes 250 MB.
    rm -rf "$devtools_dir/node_modules"
fi
