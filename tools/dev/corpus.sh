#!/bin/sh
# Writes the demo corpus, DIR/kjv.jsonl: the King James text of Debian's bible-kjv-text, in the public
# domain, one book a line as {"id": …, "text": …}. A line of the text is a verse without its number, and a
# blank line is between chapters. The same package gives the same bytes.
#
# usage: tools/dev/corpus.sh DIR
set -eu
if [ $# -ne 1 ] || [ "${1#-}" != "$1" ]; then
    echo 'usage: tools/dev/corpus.sh DIR' >&2
    exit 2
fi
if ! command -v bible >/dev/null; then
    echo 'corpus.sh: the program "bible" is missing: install the Debian packages bible-kjv and bible-kjv-text' >&2
    exit 1
fi
mkdir -p "$1"
raw=$1/kjv.raw.tmp
new=$1/kjv.jsonl.tmp
trap 'rm -f "$raw" "$new"' EXIT
if ! bible -f gen1:1-rev22:21 </dev/null >"$raw" || [ "$(wc -l <"$raw")" -ne 31102 ]; then
    echo 'corpus.sh: "bible" did not print the 31,102 verses: install the Debian package bible-kjv-text' >&2
    exit 1
fi
# "1Sm17:4 And there …": book, chapter and verse, then the text.
LC_ALL=C awk '
function begin() { printf "%s{\"id\": \"%s\", \"text\": \"", (last == "" ? "" : "\"}\n"), book }
{
    split($1, place, ":")
    book = place[1]
    sub(/[0-9]+$/, "", book)
    chapter = substr(place[1], length(book) + 1)
    text = substr($0, length($1) + 2)
    gsub(/\\/, "\\\\", text)
    gsub(/"/, "\\\"", text)
    if (book != last) begin()
    else if (chapter != before) printf "\\n"
    printf "%s\\n", text
    last = book
    before = chapter
}
END { print "\"}" }' "$raw" >"$new"
mv "$new" "$1/kjv.jsonl"
