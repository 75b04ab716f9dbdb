# gnuplot -e 'data="bench/shares.dat"; picture="bench/shares.svg"' bench/shares.gp
# Left the same jobs without an arbiter, right with gpuarb. Windows of 100 ms are not in step with samples of 100 ms:
# each point is the mean of three. The picture has a background of its own, so that it can be read on a dark page; every
# colour of a text has a contrast of at least 4.5 to it (test/picture.py looks).
set terminal svg size 960,370 font "sans-serif,13" background rgb "white"
set output picture
set multiplot layout 1,2 margins 0.07,0.985,0.16,0.87 spacing 0.05
set xrange [0:12]
set yrange [0:100]
set xtics 2
set ytics 10
set grid ytics lc rgb "#dddddd" lt 1
set border 3 lc rgb "#444444"
set tics nomirror out scale 0.5
set xlabel "seconds" offset 0,0.7 tc rgb "#222222"
unset key
set arrow 1 from 4,0 to 4,90 nohead dt 2 lc rgb "#888888"
set arrow 2 from 8,0 to 8,90 nohead dt 2 lc rgb "#888888"
set label 2 "doomed: kill -9" at 8.1,94 font ",11" tc rgb "#444444"

mean(job) = sprintf("< awk '$1 == \"%s\" {n++; s = $%d; if (n > 2) print $2 - 0.1, (a + b + s) / 3; a = b; b = s}' %s", run, job, data)
before(x) = x < 8.05 ? x : NaN

run = "none"
set title "without an arbiter" font ",15" tc rgb "#222222"
set label 1 "web wants 50" at 4.1,94 font ",11" tc rgb "#444444"
set label 11 "batch, with 3 processes" at 0.3,67 tc rgb "#b84a00"
set label 12 "web and doomed, with 1 each" at 0.3,25 tc rgb "#1a65a0"
set ylabel "percent of the GPU's time" offset 1.5,0 tc rgb "#222222"
plot mean(4) u 1:2 w l lw 2 lc rgb "#b84a00", mean(3) u 1:2 w l lw 2 lc rgb "#1a65a0", \
	mean(5) u (before($1)):2 w l lw 2 dt 2 lc rgb "#1f7a1f"
run = "gpuarb"
set title "with gpuarb" font ",15" tc rgb "#222222"
unset ylabel
set label 1 "web: core=50" at 4.1,94 font ",11" tc rgb "#444444"
set label 11 "web, limit 30" at 0.3,37 tc rgb "#1a65a0"
set label 12 "doomed, limit 25" at 4.6,32 tc rgb "#1f7a1f"
set label 14 "limit 50" at 4.6,57 tc rgb "#1a65a0"
set label 13 "batch, limit 20" at 0.3,13 tc rgb "#b84a00"
plot mean(4) u 1:2 w l lw 2 lc rgb "#b84a00", mean(3) u 1:2 w l lw 2 lc rgb "#1a65a0", \
	mean(5) u (before($1)):2 w l lw 2 lc rgb "#1f7a1f"
unset multiplot
