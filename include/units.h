/* Times in nanoseconds, sizes in bytes. */
#ifndef UNITS_H
#define UNITS_H

#define US     1000ull
#define MS     1000000ull
#define SECOND 1000000000ull

#define KIB (1ull << 10)
#define MIB (1ull << 20)
#define GIB (1ull << 30)

#endif
