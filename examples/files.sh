#!/bin/sh
# Files through the command line: alerts in CSV, ticks in CSV and NDJSON, matches in Parquet.
#
# Run it with `sh files.sh`. It needs only Boxmatch itself, with `boxmatch` on the PATH.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"

cat >alerts.csv <<'END'
id,filter
alice,symbol = 'IBM' AND price BETWEEN 20 AND 30
bob,price < 25 OR volume >= 1000000
carol,"symbl IN ('TRUE', 'NA')"
END
cat >ticks.csv <<'END'
symbol,price,volume
IBM,24.5,100
TRUE,99.0,
NA,31.25,2000000
END

echo "A mistake in a filter is shown, with its place"
boxmatch match -s alerts.csv -e ticks.csv 2>&1 | tail -n 3

sed "s/symbl/symbol/" alerts.csv >corrected.csv

echo "Ticks in CSV: TRUE and NA are symbols"
boxmatch match -s corrected.csv -e ticks.csv --save alerts.bm

echo "Why does alice not match?"
boxmatch match -s alerts.bm -e ticks.csv --explain alice | sed -n '5,7p'

echo "Ticks as they arrive, in NDJSON"
printf '%s\n' '{"symbol": "IBM", "price": 21}' '{"symbol": "KO", "price": 60}' |
  boxmatch match -s alerts.bm --json

echo "Matches in a file"
boxmatch match -s alerts.bm -e ticks.csv -o matches.parquet --keep symbol

echo "What was saved"
boxmatch info alerts.bm --filters | sort
