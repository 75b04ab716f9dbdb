/* gpuarb-replay: any bytes are a trace or are refused, and no event of a trace harms the book. */
#include "test/fuzz/fuzz.h"

#include <string.h>

#include "preload/book/replay.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
	static struct replay p;
	struct trace_record r;
	char words[256], verdict[768];
	uint64_t events = 0;

	if (!replay_begin(&p, data, size))
		return 0;
	while (replay_next(&p, &r)) {
		book_words(words, sizeof(words), &r.event, &r.action);
		FUZZ_HOLDS(strlen(words) < sizeof(words) && *words, "no words");
		FUZZ_HOLDS(p.book.queue.count <= BOOK_FENCES, "%u fences", p.book.queue.count);
		FUZZ_HOLDS(p.book.state < BOOK_STATES, "state %u", p.book.state);
		events++;
	}
	FUZZ_HOLDS(events == p.events && events <= size, "%llu events of %zu bytes",
		(unsigned long long)events, size);
	replay_verdict(&p, verdict, sizeof(verdict));
	FUZZ_HOLDS(*verdict, "no verdict");
	return 0;
}
