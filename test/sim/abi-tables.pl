#!/usr/bin/perl
# Reads the types of the project's headers and writes a C program that prints each size, offset and
# value. Compiled with the project's header and with NVIDIA's, it must print the same.
use strict;
use warnings;

my ($header, @files) = @ARGV;
my $text = '';
for my $f (@files) {
	open my $in, '<', $f or die "$f: $!\n";
	local $/;
	$text .= <$in>;
}
my @macros = $text =~ /^#define (CU\w+) \S/mg;
$text =~ s{/\*.*?\*/}{}gs;
$text =~ s/^#.*$//mg;
$text =~ s/_Alignas\(\d+\)//g;

print qq(#include <stdio.h>\n#include <stddef.h>\n$header\nint main(void)\n{\n);
print qq(\tprintf("$_ %lld\\n", (long long)$_);\n) for @macros;

# A field is named by its path: "res.array.hArray" is a legal offsetof designator.
sub fields {
	my ($type, $path, $body) = @_;
	while ($body =~ /\S/) {
		$body =~ s/^\s+//;
		last if $body eq '';
		if ($body =~ s/^(?:struct|union)(?:\s+\w+)?\s*(\{(?:[^{}]++|(?1))*\})\s*(\w*)(?:\[[^\]]*\])?\s*;//) {
			my ($inner, $name) = (substr($1, 1, -1), $2);
			print_offset($type, "$path$name") if $name;
			fields($type, $name ? "$path$name." : $path, $inner);
		} elsif ($body =~ s/^([^;{]*);//) {
			my $decl = $1;
			$decl =~ s/\[[^\]]*\]//g;
			my @names = $decl =~ /\(/ ? $decl =~ /\(\*\s*(\w+)\)/ : map { /(\w+)\s*$/ } split /,/, $decl;
			print_offset($type, "$path$_") for @names;
		} else {
			die "cannot read: $body\n";
		}
	}
}

sub print_offset {
	my ($type, $field) = @_;
	print qq(\tprintf("$type.$field %zu %zu\\n", offsetof($type, $field), sizeof((($type *)0)->$field));\n);
}

while ($text =~ /typedef\s+(enum|struct|union)\s*\w*\s*(\{(?:[^{}]++|(?2))*\})\s*(\w+)\s*;/g) {
	my ($kind, $body, $name) = ($1, substr($2, 1, -1), $3);
	print qq(\tprintf("$name %zu %zu\\n", sizeof($name), _Alignof($name));\n);
	if ($kind eq 'enum') {
		print qq(\tprintf("$_ %lld\\n", (long long)$_);\n) for $body =~ /(\w+)\s*=/g;
	} else {
		fields($name, '', $body);
	}
}
while ($text =~ /^struct\s+(\w+)\s*(\{(?:[^{}]++|(?2))*\})\s*;/mg) {
	my ($name, $body) = ("struct $1", substr($2, 1, -1));
	print qq(\tprintf("$name %zu %zu\\n", sizeof($name), _Alignof($name));\n);
	fields($name, '', $body);
}
while ($text =~ /^enum\s+\w+\s*\{([^{}]*)\}\s*;/mg) {
	print qq(\tprintf("$_ %lld\\n", (long long)$_);\n) for $1 =~ /(\w+)\s*=/g;
}
print qq(\tprintf("$_ %zu\\n", sizeof($_));\n) for $text =~ /^typedef\s+[^{};]*?(\w+);/mg;
print "\treturn 0;\n}\n";
