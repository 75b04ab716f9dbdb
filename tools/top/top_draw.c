#include "tools/top/top_draw.h"

#include <stdarg.h>
#include <string.h>

#include "gpuarb/config.h"

#include "tools/top/top_text.h"
#include "tools/top/top_words.h"

#define LEAST_WIDTH  40
#define LEAST_HEIGHT 8
/* A terminal of at least this height has room for more than the clients. */
#define ROOMY 16
/* In bytes: has_others() says why. */
#define LEAST_DIFFERENCE (64ull << 20)

/* A line of parts with a separator. If a part does not fit, it and all parts behind it are left out. */
struct line {
	struct top_grid *grid;
	int y, x;
	bool full;
};

__attribute__((format(printf, 3, 4))) static void part(
	struct line *l, unsigned style, const char *format, ...)
{
	char text[256];
	const char *end = text;
	int columns = 0;
	va_list ap;

	va_start(ap, format);
	vsnprintf(text, sizeof(text), format, ap);
	va_end(ap);
	while (top_text_decode(&end))
		columns++;
	if (l->full || (l->x && l->x + 3 + columns > l->grid->width)) {
		l->full = true;
		return;
	}
	if (l->x)
		l->x += top_grid_text(l->grid, l->y, l->x, 3, TOP_DIM, " \u00b7 ");
	l->x += top_grid_text(l->grid, l->y, l->x, l->grid->width - l->x, style, text);
}

static unsigned fill_style(double fill)
{
	return fill >= 0.9 ? TOP_BAD : fill >= 0.7 ? TOP_WARN : TOP_GOOD;
}

static void title_line(struct top_grid *g, int y, const struct top_gpu *gpu, const char *left)
{
	char uuid[ARB_UUID_BYTES + 32], name[96], clock[32], text[256];
	uint64_t now = gpu->picture->now_ns + gpu->real_minus_mono_ns;

	top_gpu_text(gpu, uuid, sizeof(uuid));
	top_text_safe(gpu->name, name, sizeof(name));
	snprintf(text, sizeof(text), "%s%s%s%s", left, uuid, *name ? "  " : "", name);
	top_text_clock(now, clock, sizeof(clock));
	clock[8] = '\0';
	top_grid_text(g, y, 0, g->width - 10, TOP_PLAIN, text);
	top_grid_right(g, y, 0, g->width, TOP_PLAIN, clock);
	top_grid_paint(g, y, TOP_TITLE);
}

static void usage_part(struct line *l, const struct gpuarb_view_admission *a)
{
	unsigned style = a->high_pressure ? TOP_BAD : TOP_PLAIN;
	char age[32];

	if (!a->usage_known)
		part(l, style, "usage unknown");
	else if (a->source == ARB_SAMPLE_NONE || !a->sampled)
		part(l, style, "usage %u%%", a->usage_hundredths / 100);
	else
		part(l, style, "usage %u%% (%s old)", a->usage_hundredths / 100,
			top_text_time(a->sample_age_ns, age, sizeof(age)));
}

static void rule_line(struct top_grid *g, int y, const struct top_gpu *gpu)
{
	const struct gpuarb_picture *p = gpu->picture;
	struct line l = {g, y, 0, false};
	uint64_t sum = top_gpu_limits_ppm(gpu);
	char text[64];

	part(&l, TOP_PLAIN, "policy %s", top_words_choice(p, ARB_KEY_POLICY, text, sizeof(text)));
	part(&l, TOP_PLAIN, "window %u ms", (unsigned)(p->window_ns / 1000000));
	part(&l, p->admission.high_pressure ? TOP_BAD : TOP_PLAIN, "admission %s",
		p->admission.high_pressure ? "HIGH PRESSURE" : "normal");
	if (sum > 1000000)
		part(&l, TOP_WARN, "limits %u%%: scaled", (unsigned)(sum / 10000));
	if (p->requests_pct)
		part(&l, TOP_PLAIN, "requests %u%%", p->requests_pct);
	if (p->setting[ARB_KEY_BORROW])
		part(&l, TOP_PLAIN, "borrow %s", top_words_choice(p, ARB_KEY_BORROW, text, sizeof(text)));
	if (p->setting[ARB_KEY_BILLING])
		part(&l, TOP_PLAIN, "billing %s", top_words_choice(p, ARB_KEY_BILLING, text, sizeof(text)));
}

static void client_line(struct top_grid *g, int y, const struct top_gpu *gpu)
{
	const struct gpuarb_picture *p = gpu->picture;
	struct line l = {g, y, 0, false};

	part(&l, TOP_PLAIN, "%u process%s", p->nclients - p->ndead, p->nclients - p->ndead == 1 ? "" : "es");
	part(&l, p->nrunning ? TOP_GOOD : TOP_PLAIN, "%u running", p->nrunning);
	part(&l, p->nwaiting ? TOP_WARN : TOP_PLAIN, "%u waiting", p->nwaiting);
	usage_part(&l, &p->admission);
	if (p->admission.queue_len)
		part(&l, TOP_WARN, "%u to be admitted", p->admission.queue_len);
	if (p->nmem_waiting)
		part(&l, TOP_WARN, "%u for memory", p->nmem_waiting);
	if (p->npromises_waiting)
		part(&l, TOP_WARN, "%u to start", p->npromises_waiting);
	if (p->consistent && p->billed_ns != p->busy_ns)
		part(&l, TOP_BAD, "bills differ from busy time by %lld ns",
			(long long)(p->billed_ns - p->busy_ns));
	if (p->reclaimed)
		part(&l, TOP_PLAIN, "%llu reclaimed", (unsigned long long)p->reclaimed);
	part(&l, TOP_PLAIN, "%u of %u slots", p->nclients, p->nslots);
}

static void busy_bar(struct top_grid *g, int y, int x, int room, const struct top_gpu *gpu)
{
	static const char *const names[TOP_SPANS] = {"", "  10s ", "  60s "};
	int bar = room - 36 > 10 ? room - 36 : 10, at = x + 6 + bar;
	char text[16];

	top_grid_text(g, y, x, 4, TOP_PLAIN, "busy");
	top_grid_bar(g, y, x + 5, bar, fill_style(gpu->share[0].value), gpu->share[0].value, -1);
	for (int i = 0; i < TOP_SPANS && at < x + room; i++) {
		at += top_grid_text(g, y, at, x + room - at, TOP_DIM, names[i]);
		if (gpu->share[i].known)
			at += top_grid_print(g, y, at, x + room - at, TOP_PLAIN, "%5s",
				top_text_share(gpu->share[i].value, text, sizeof(text)));
		else
			at += top_grid_text(g, y, at, x + room - at, TOP_DIM, "    -");
	}
}

static void memory_bar(struct top_grid *g, int y, int x, int room, const struct top_gpu *gpu)
{
	const struct gpuarb_picture *p = gpu->picture;
	int bar = room - 36 > 10 ? room - 36 : 10, at = x + 6 + bar;
	double fill = p->mem_physical ? (double)p->mem_used / (double)p->mem_physical : 0;
	double promised = p->mem_physical ? (double)p->mem_promised / (double)p->mem_physical : -1;
	char used[16], total[16], quotas[16];

	top_grid_text(g, y, x, 4, TOP_PLAIN, "mem");
	top_grid_bar(g, y, x + 5, bar, fill_style(fill), fill, p->mem_promised ? promised : -1);
	at += top_grid_print(
		g, y, at, x + room - at, TOP_PLAIN, "%5s", top_text_bytes(p->mem_used, used, sizeof(used)));
	if (p->mem_physical)
		at += top_grid_print(g, y, at, x + room - at, TOP_PLAIN, " of %s",
			top_text_bytes(p->mem_physical, total, sizeof(total)));
	if (p->mem_promised)
		top_grid_print(g, y, at, x + room - at, TOP_DIM, "  promised %s",
			top_text_bytes(p->mem_promised, quotas, sizeof(quotas)));
}

/* The whole device, as NVML sees it, beside the clients' numbers. */
static void device_line(struct top_grid *g, int y, const struct nonclients *o)
{
	struct line l = {g, y, 0, false};
	char used[16], total[16];

	if (o->memory_known)
		part(&l, TOP_PLAIN, "device %s of %s in use", top_text_bytes(o->used, used, sizeof(used)),
			top_text_bytes(o->total, total, sizeof(total)));
	if (o->utilisation_known)
		part(&l, TOP_PLAIN, "%sutilisation %u%%", o->memory_known ? "" : "device ",
			o->utilisation_pct);
	part(&l, TOP_DIM, "by NVML, clients or not");
}

/* The GPU is busier than the bills: because of programs that are no clients, or work that gpuarb does not see. */
static void unbilled_line(struct top_grid *g, int y, const struct top_gpu *gpu)
{
	struct line l = {g, y, 0, false};

	part(&l, TOP_WARN, "not billed: %.0f%% of the last %d s, in which NVML saw the GPU busy",
		100 * gpu->unbilled.value, TOP_UNBILLED_S);
	part(&l, TOP_PLAIN,
		gpu->others.by == NONCLIENTS_BY_PROCESS && gpu->others.count
			? "by programs that are no clients, or past gpuarb"
			: "past gpuarb");
}

static void others_line(struct top_grid *g, int y, const struct nonclients *o)
{
	struct line l = {g, y, 0, false};
	char bytes[16], name[64];

	top_text_bytes(o->bytes, bytes, sizeof(bytes));
	if (o->by == NONCLIENTS_BY_DIFFERENCE)
		part(&l, TOP_WARN, "not clients: about %s", bytes);
	else
		part(&l, TOP_WARN, "not clients: %u process%s, %s", o->count, o->count == 1 ? "" : "es",
			bytes);
	for (unsigned i = 0; i < o->nlisted; i++)
		part(&l, TOP_PLAIN, "%u %s %s", o->list[i].pid,
			o->list[i].command[0] ? top_text_safe(o->list[i].command, name, sizeof(name)) : "?",
			o->list[i].bytes == NVML_BYTES_UNKNOWN
				? "-"
				: top_text_bytes(o->list[i].bytes, bytes, sizeof(bytes)));
}

/* The difference includes contexts and what the driver keeps for itself, so a few megabytes do not show a program. */
static bool has_others(const struct nonclients *o)
{
	return o->by == NONCLIENTS_BY_PROCESS
		       ? o->count > 0
		       : o->by == NONCLIENTS_BY_DIFFERENCE && o->bytes >= LEAST_DIFFERENCE;
}

/* Draws the head of a GPU; returns the next line. */
static int head(struct top_grid *g, int y, const struct top_gpu *gpu, const char *left, bool roomy)
{
	title_line(g, y++, gpu, left);
	rule_line(g, y++, gpu);
	client_line(g, y++, gpu);
	if (g->width >= 110) {
		busy_bar(g, y, 0, g->width / 2 - 2, gpu);
		memory_bar(g, y++, g->width / 2, g->width / 2, gpu);
	} else {
		busy_bar(g, y++, 0, g->width, gpu);
		memory_bar(g, y++, 0, g->width, gpu);
	}
	if (!roomy)
		return y;
	if (gpu->others.memory_known || gpu->others.utilisation_known)
		device_line(g, y++, &gpu->others);
	if (has_others(&gpu->others))
		others_line(g, y++, &gpu->others);
	if (gpu->unbilled.known && gpu->unbilled.value >= TOP_UNBILLED_LEAST)
		unbilled_line(g, y++, gpu);
	return y;
}

static int plot(struct top_grid *g, int y, int lines, const struct top_gpu *gpu)
{
	top_grid_text(g, y, 0, 4, TOP_DIM, "100%");
	top_grid_text(g, y + lines - 1, 0, 4, TOP_DIM, "  0%");
	top_grid_plot(g, y, 5, lines, g->width - 5, TOP_INFO, gpu->history.permille, gpu->history.count);
	return y + lines;
}

int top_draw_lines(const struct top_gpu *gpu, const struct top_ui *ui)
{
	static struct top_row rows[TOP_ROWS];
	unsigned n = top_ui_rows(ui, gpu, rows, TOP_ROWS);

	return 10 + (int)(n ? n : 1);
}

static void no_rows(struct top_grid *g, int y, const struct top_ui *ui)
{
	if (ui->filter[0])
		top_grid_print(g, y, 0, g->width, TOP_DIM, "no account matches '%s'", ui->filter);
	else
		top_grid_text(g, y, 0, g->width, TOP_DIM, "nobody uses this GPU now");
}

void top_draw_page(struct top_grid *g, const struct top_gpu *gpu, const struct top_ui *ui)
{
	static struct top_row rows[TOP_ROWS];
	unsigned n = top_ui_rows(ui, gpu, rows, TOP_ROWS);
	int y = head(g, 0, gpu, "", true), name = top_table_name(g, rows, n);

	top_table_titles(g, y++, gpu, ui, name);
	if (!n)
		no_rows(g, y, ui);
	top_table_rows(g, y, g->height - y, 0, gpu, ui, rows, n, name);
}

/* Finds the first row to show, so that the selected row is visible. */
static void follow(struct top_ui *ui, const struct top_row *rows, int count)
{
	for (int i = 0; i < count; i++)
		if (rows[i].client < 0 && strcmp(rows[i].account->now.name, ui->selected) == 0) {
			if (i < ui->scroll)
				ui->scroll = i;
			if (i >= ui->scroll + ui->page)
				ui->scroll = i - ui->page + 1;
		}
	if (ui->scroll > count - ui->page)
		ui->scroll = count - ui->page;
	if (ui->scroll < 0)
		ui->scroll = 0;
}

/* Draws the last events, the newest at the bottom. Returns how many lines they took. */
static int event_lines(struct top_grid *g, int bottom, int most, const struct top_gpu *gpu)
{
	int shown = 0;

	for (uint64_t k = gpu->nevents; k > 0 && gpu->nevents - k < TOP_EVENTS && shown < most; k--) {
		const struct top_event *e = &gpu->events[(k - 1) % TOP_EVENTS];
		char words[256], clock[32], name[2 * ARB_NAME_BYTES];

		/* Limited accounts are throttled and resumed in every window, so these events are left out. */
		if (e->e.kind == ARB_EVENT_THROTTLED || e->e.kind == ARB_EVENT_RESUMED)
			continue;
		shown++;
		top_grid_print(g, bottom - shown, 0, g->width, TOP_DIM, "%s %s %s",
			top_text_clock(e->e.time_ns + gpu->real_minus_mono_ns, clock, sizeof(clock)),
			top_words_subject(e, name, sizeof(name)),
			top_words_event(gpu, e, words, sizeof(words)));
	}
	return shown;
}

static void more_line(struct top_grid *g, int y, int more)
{
	char text[32];

	snprintf(text, sizeof(text), "  %d more", more);
	top_grid_text(g, y, g->width - (int)strlen(text), 32, TOP_BOLD, text);
}

static void table(struct top_grid *g, int y, int bottom, const struct top_gpu *gpu, struct top_ui *ui)
{
	static struct top_row rows[TOP_ROWS];
	unsigned n = top_ui_rows(ui, gpu, rows, TOP_ROWS);
	int spare = bottom - y - 1 - (int)n, name = top_table_name(g, rows, n);

	/* Lines that the table does not need go to the plot first, then to the events. */
	if (spare >= 4 || bottom - y > 16) {
		int lines = spare > 24 ? 10 : spare > 8 ? 5 : 3;

		y = plot(g, y, lines, gpu);
		spare -= lines;
	}
	if (spare >= 2)
		event_lines(g, bottom, spare - 1 > 8 ? 8 : spare - 1, gpu);
	top_table_titles(g, y++, gpu, ui, name);
	ui->table_y = y;
	ui->page = bottom - y > 1 ? bottom - y : 1;
	follow(ui, rows, (int)n);
	if (!n)
		no_rows(g, y, ui);
	top_table_rows(g, y, ui->page, ui->scroll, gpu, ui, rows, n, name);
	if ((int)n > ui->scroll + ui->page)
		more_line(g, bottom, (int)n - ui->scroll - ui->page);
}

static void last_line(struct top_grid *g, const struct top_ui *ui, bool any)
{
	int y = g->height - 1;
	const char *setting = top_ui_setting(ui->mode);
	char name[2 * ARB_NAME_BYTES];

	if (setting)
		top_grid_print(g, y, 0, g->width, TOP_BOLD, "%s of %s%s: %s_", setting,
			top_text_safe(ui->selected, name, sizeof(name)),
			ui->mode == TOP_ASK_CORE  ? " (1 to 100)"
			: ui->mode == TOP_ASK_MEM ? " (such as 4Gi, 0: no limit)"
						  : " (1 to 100, higher goes first)",
			ui->input);
	else if (ui->mode == TOP_ASK_FILTER)
		top_grid_print(g, y, 0, g->width, TOP_BOLD, "filter: %s_", ui->input);
	else if (ui->message[0])
		top_grid_text(g, y, 0, g->width, ui->message_bad ? TOP_BAD : TOP_BOLD, ui->message);
	else if (ui->mode == TOP_HELP || ui->mode == TOP_EXPLAIN)
		top_grid_text(g, y, 0, g->width, TOP_DIM, "any other key: back");
	else if (ui->trouble[0] && any)
		top_grid_text(g, y, 0, g->width, TOP_BAD, ui->trouble);
	else if (ui->filter[0])
		top_grid_print(g, y, 0, g->width, TOP_WARN, "filter: %s   (Esc: all)", ui->filter);
	else
		top_grid_print(g, y, 0, g->width, TOP_DIM,
			"%sq quit  ? help  e why  l limit  / filter  s sort: %s",
			ui->paused ? "PAUSED (z)  " : "", top_sort_name(ui->sort));
}

/* Draws the GPUs that are not shown in full, a line each. */
static int other_gpus(
	struct top_grid *g, int y, struct top_gpu *const *gpus, unsigned ngpus, const struct top_ui *ui)
{
	for (unsigned i = 0; i < ngpus && i < 8; i++) {
		struct line l = {g, y, 0, false};
		const struct gpuarb_picture *p = gpus[i]->picture;
		char uuid[ARB_UUID_BYTES + 32], text[32];

		if (i == ui->gpu || !p)
			continue;
		part(&l, TOP_DIM, "%u/%u %s", i + 1, ngpus, top_gpu_text(gpus[i], uuid, sizeof(uuid)));
		part(&l, TOP_DIM, "busy %s",
			gpus[i]->share[0].known ? top_text_share(gpus[i]->share[0].value, text, sizeof(text))
						: "-");
		part(&l, TOP_DIM, "%u running", p->nrunning);
		part(&l, TOP_DIM, "%u waiting", p->nwaiting);
		part(&l, TOP_DIM, "mem %s", top_text_bytes(p->mem_used, text, sizeof(text)));
		y++;
	}
	return y;
}

void top_draw_screen(struct top_grid *g, struct top_gpu *const *gpus, unsigned ngpus, struct top_ui *ui)
{
	int bottom = g->height - 1, y = 0;
	char left[64] = "";

	if (g->width < LEAST_WIDTH || g->height < LEAST_HEIGHT) {
		top_grid_text(g, 0, 0, g->width, TOP_BAD, "too small");
		return;
	}
	if (ui->gpu >= ngpus)
		ui->gpu = 0;
	last_line(g, ui, ngpus > 0);
	if (!ngpus || !gpus[ui->gpu]->picture) {
		top_grid_text(g, 0, 0, g->width, TOP_TITLE, "gpuarb-top");
		top_draw_text(g, 2, bottom, ui,
			ui->trouble[0] ? ui->trouble : "nobody uses a GPU through gpuarb yet");
		return;
	}
	if (ngpus > 1)
		snprintf(left, sizeof(left), "%u/%u ", ui->gpu + 1, ngpus);
	y = head(g, y, gpus[ui->gpu], left, g->height >= ROOMY);
	if (ngpus > 1 && g->height >= 20)
		y = other_gpus(g, y, gpus, ngpus, ui);
	if (ui->mode == TOP_HELP)
		top_draw_text(g, y + 1, bottom, ui, top_help);
	else if (ui->mode == TOP_EXPLAIN && ui->explanation)
		top_draw_text(g, y + 1, bottom, ui, ui->explanation);
	else
		table(g, y, bottom, gpus[ui->gpu], ui);
}
