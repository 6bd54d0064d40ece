"""What the page looks like: on a phone and on a desk, dark and light, with a keyboard alone, and on paper."""

CATEGORY_COLOURS = {
    "productive": "#2f9e6e",
    "initialization": "#7c8b9d",
    "training_preparation": "#9a8f52",
    "data_loading": "#d39b22",
    "checkpoint_save": "#8a63c9",
    "checkpoint_restore": "#b486d9",
    "wasted_progress_from_disruption": "#c93c4e",
    "infrastructure_recovery_from_disruption": "#e0702f",
    "elastic_scale_up": "#2f7fd1",
    "elastic_scale_down": "#49b1c9",
    "other": "#a9a9a9",
}
"""By category of `rendezvous/time_split.py`."""

_SWATCHES = "".join(f".c-{name}{{background:{colour};fill:{colour}}}" for name, colour in CATEGORY_COLOURS.items())

STYLE = (
    """
:root{color-scheme:light dark;--page:#f6f7f9;--card:#fff;--text:#1b2430;--soft:#566273;--line:#dde2e8;--link:#0b5cad;
--good:#1d7f56;--bad:#b3263a;--warn:#a55a00;--area:#2f7fd133;--edge:#2f7fd1;--code:#f0f2f5}
@media (prefers-color-scheme:dark){:root{--page:#11161c;--card:#1a212a;--text:#e6ebf1;--soft:#9fabba;--line:#2e3844;
--link:#79b8ff;--good:#5bcf9c;--bad:#ff8a97;--warn:#f0b35b;--area:#4a95e033;--edge:#6cb0f5;--code:#232c37}}
*{box-sizing:border-box}
html{font:16px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;background:var(--page);color:var(--text);
-webkit-text-size-adjust:100%}
body{margin:0 auto;max-width:64rem;padding:1rem}
a{color:var(--link)}
:focus-visible{outline:3px solid var(--link);outline-offset:2px;border-radius:4px}
.skip{position:absolute;left:-100rem}.skip:focus{left:1rem;background:var(--card);padding:.5rem;z-index:1}
header h1{font-size:1.5rem;margin:.2rem 0;overflow-wrap:anywhere}
header p{margin:.2rem 0;color:var(--soft);overflow-wrap:anywhere}
section{background:var(--card);border:1px solid var(--line);border-radius:.75rem;padding:1rem;margin:1rem 0}
h2{font-size:1.05rem;margin:0 0 .6rem}
h3{font-size:.95rem;margin:.8rem 0 .3rem}
.pill{display:inline-block;border-radius:2rem;padding:.05rem .7rem;font-size:.85rem;font-weight:600;border:1.5px solid;
vertical-align:middle}
.good{color:var(--good)}.bad{color:var(--bad)}.warn{color:var(--warn)}.soft{color:var(--soft)}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(8.2rem,1fr));gap:.6rem;margin:1rem 0}
.tiles div{background:var(--card);border:1px solid var(--line);border-radius:.75rem;padding:.6rem .8rem}
.tiles b{display:block;font-size:1.3rem;font-variant-numeric:tabular-nums}
.tiles span{color:var(--soft);font-size:.8rem}
.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:.9rem;font-variant-numeric:tabular-nums}
th,td{text-align:left;padding:.3rem .8rem .3rem 0;border-bottom:1px solid var(--line);vertical-align:top}
th{font-weight:600;color:var(--soft);white-space:nowrap}
td.n,th.n{text-align:right;white-space:nowrap}
.scroll td:last-child{min-width:14rem}
tr:last-child td{border-bottom:0}
details{border:1px solid var(--line);border-radius:.5rem;margin:.5rem 0;padding:0 .8rem}
details[open]{padding-bottom:.6rem}
summary{cursor:pointer;padding:.6rem 0;overflow-wrap:anywhere}
summary b{font-variant-numeric:tabular-nums}
pre{background:var(--code);padding:.6rem;border-radius:.5rem;overflow-x:auto;font-size:.8rem;line-height:1.4;
max-height:24rem;margin:.3rem 0;white-space:pre-wrap;overflow-wrap:anywhere}
ul{margin:.3rem 0;padding-left:1.2rem}li{margin:.15rem 0;overflow-wrap:anywhere}
svg{display:block;width:100%;height:auto;overflow:visible}
svg text{fill:var(--soft);font-size:12px;font-family:inherit}
svg .grid{stroke:var(--line);stroke-width:1}
svg .area{fill:var(--area)}svg .edge{fill:none;stroke:var(--edge);stroke-width:2}
svg .mark{fill:var(--warn)}svg .mark+text{fill:var(--card);font-weight:700;text-anchor:middle}
svg a:focus-visible{outline:none}svg a:focus-visible .mark{stroke:var(--link);stroke-width:3}
svg .cut{stroke:var(--warn);stroke-width:1;stroke-dasharray:3 3}
.narrow{display:none}
@media (max-width:40rem){.narrow{display:block}.wide{display:none}body{padding:.6rem}section{padding:.8rem}}
.swatch{display:inline-block;width:.8rem;height:.8rem;border-radius:.2rem;margin-right:.4rem;vertical-align:-.05rem}
.bar{height:1.6rem;border-radius:.4rem;margin-bottom:.6rem}
progress{width:100%;height:1rem;accent-color:var(--edge)}
footer{color:var(--soft);font-size:.8rem;margin:1rem 0}
@media print{section,details{break-inside:avoid}:root{--page:#fff}}
@media (prefers-reduced-motion:no-preference){.live{transition:opacity .2s}}
"""
    + _SWATCHES
)
