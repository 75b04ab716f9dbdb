#!/bin/sh
# Makes the manual page arbiter.conf(5): the text of arbiter.conf.example for each setting, in the places that
# tools/arbiter.conf.5.in has for them. Usage: conf-page.sh EXAMPLE PAGE.in >PAGE
set -eu
awk '
	# Makes a line for the page; characters that troff would interpret are escaped.
	function plain(text) {
		gsub(/\\/, "\\e", text)
		gsub(/-/, "\\-", text)
		sub(/^[.'\'']/, "\\\\\\&&", text)
		return text
	}
	function entry(name, value) {
		page[part] = page[part] ".TP\n.BR " name " \" (default: " (value == "" ? "empty" : plain(value)) ")\"\n" words
		words = ""
	}
	FNR == NR {
		if (/^# When a segment is made/) part = "CREATE"
		else if (/^# Limits of accounts/) part = "ACCOUNT"
		else if (/^# Task classes/) part = "CLASS"
		else if (/^\[gpu\]/) part = "GPU"
		if (/^#\[/) example = !/class default/      # a section to copy
		else if (/^$/) { example = 0; words = "" }
		else if (/^#$/) words = ""
		else if (/^# /) words = words plain(substr($0, 3)) "\n"
		else if (/^#[a-z_]+ =/ && !example) {
			value = $0
			sub(/^#[a-z_]+ = */, "", value)
			entry(substr($1, 2), value)
		}
		next
	}
	/^@[A-Z]+@$/ { printf "%s", page[substr($0, 2, length($0) - 2)]; next }
	{ print }' "$1" "$2"
