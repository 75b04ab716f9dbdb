#!/usr/bin/perl
# Writes C from the table of all driver calls, for the tests of the preload:
#   record   a driver whose every function notes its name and arguments
#   forward  a driver that writes down each call and hands it to another driver
#   calls    for each function, a call with known arguments
use strict;
use warnings;

my ($what, @tables) = @ARGV;
my @calls;
for my $file (@tables) {
	open my $in, '<', $file or die "$file: $!\n";
	while (<$in>) {
		/^CU_CALL\((\w+), \((.*)\), \(([^()]*)\)\)$/ or next;
		my ($name, $params, @args) = ($1, $2, split /, /, $3);
		my @types = $params eq 'void' ? () : map { s/\s*\w+$//r } split /, /, $params =~ s/(\w+)\[\]/*$1/gr;
		push @calls, { name => $name, params => $params, args => \@args, types => \@types };
	}
}

sub arguments {
	my ($c) = @_;
	return 'NULL' unless @{ $c->{args} };
	return '(struct record_arg[]){' . join(', ', map { "{&$_, sizeof($_)}" } @{ $c->{args} }) . '}';
}

for my $c (@calls) {
	my ($name, $n, $list) = ($c->{name}, scalar @{ $c->{args} }, join(', ', @{ $c->{args} }));
	if ($what eq 'record') {
		print "__attribute__((weak)) CUresult $name($c->{params})\n{\n";
		print "\treturn record_call(\"$name\", $n, ", arguments($c), ");\n}\n";
	} elsif ($what eq 'forward') {
		next if $name =~ /^cuGetProcAddress/;
		print "__attribute__((weak)) CUresult $name($c->{params})\n{\n";
		print "\tstatic __typeof__($name) *real;\n\n";
		print "\tif (!real && !(real = forward_find(\"$name\")))\n\t\treturn CUDA_ERROR_NOT_FOUND;\n";
		print "\treturn forward_said(\"$name\", real($list));\n}\n";
	} else {
		print "static CUresult call_$name(void *fn_)\n{\n";
		for my $i (0 .. $n - 1) {
			my ($type, $arg) = ($c->{types}[$i], $c->{args}[$i]);
			print "\t$type $arg;\n";
		}
		print "\n";
		for my $i (0 .. $n - 1) {
			my $pointer = $c->{types}[$i] =~ /\*/ ? 'true' : 'false';
			print "\targ_fill($i, (void *)&$c->{args}[$i], sizeof($c->{args}[$i]), $pointer);\n";
		}
		print "\targ_expect($n, ", arguments($c), ");\n";
		print "\treturn ((__typeof__($name) *)fn_)($list);\n}\n";
	}
}
if ($what eq 'calls') {
	print "static const struct call calls[] = {\n";
	print "\t{\"$_->{name}\", call_$_->{name}, DIRECT($_->{name})},\n" for @calls;
	print "};\n";
}
