#!/bin/sh
# Writes what is installed beside the command and made from its tables: manual pages, compressed as Debian
# wants them (the same bytes every time), and completion for three shells.
#
# usage: help_files.sh TTT FOLDER
set -eu
ttt=$1 folder=$2
rm -rf "$folder"
mkdir -p "$folder/man1" "$folder/completions"
"$ttt" help --format man --out "$folder/man1"
gzip -9n "$folder"/man1/*.1
"$ttt" help --format bash >"$folder/completions/ttt"
"$ttt" help --format zsh >"$folder/completions/_ttt"
"$ttt" help --format fish >"$folder/completions/ttt.fish"
