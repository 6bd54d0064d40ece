#!/bin/sh
# Makes sure that the tests of the page find a browser, and says whether they do. Installs Debian's chromium where that
# works without asking; else those tests are skipped and say so.
set -u
found() { command -v chromium || command -v chromium-browser || command -v google-chrome; }
if ! found >/dev/null && [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    echo "installing Debian's chromium"
    { apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends chromium; } \
        >/dev/null 2>&1 || echo "it could not be installed"
fi
if found >/dev/null; then
    echo "the tests of the page use $(found)"
else
    echo "the tests of the page in a browser will be skipped: there is no chromium"
fi
