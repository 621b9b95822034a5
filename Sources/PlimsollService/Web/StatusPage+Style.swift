extension StatusPage {
    /// Styles. Text has a contrast of at least 4.5 to 1 to the background, lines and badges of at least 3 to 1 (WCAG
    /// 2.2), in both schemes.
    static let style = """

        :root {
          --ground: #f4f5f7; --panel: #ffffff; --text: #1b232c; --dim: #55616e; --edge: #d5dae0;
          --usage: #1763c6; --fill: #1763c622; --warning: #8f5a00; --critical: #bd2318; --limit: #3a444f; --calm: #1c6b3a;
        }
        @media (prefers-color-scheme: dark) {
          :root {
            --ground: #0f1419; --panel: #181f27; --text: #e6e9ed; --dim: #a0acb8; --edge: #323c47;
            --usage: #5aa9ff; --fill: #5aa9ff2b; --warning: #e6ae45; --critical: #ff7b72; --limit: #c3ccd5; --calm: #5fcf8a;
          }
        }
        * { box-sizing: border-box; }
        [hidden] { display: none !important; }
        body { margin: 0; background: var(--ground); color: var(--text); font: 15px/1.45 system-ui, "DejaVu Sans", sans-serif; }
        header { display: flex; flex-wrap: wrap; align-items: center; gap: 4px 14px; padding: 14px 20px 2px; max-width: 1320px; margin: 0 auto; }
        header p { margin: 0; color: var(--dim); }
        h1 { font-size: 20px; margin: 0; }
        h2 { font-size: 15px; margin: 0 0 8px; }
        h3 { font-size: 14px; margin: 14px 0 0; }
        .curves { display: grid; grid-template-columns: repeat(auto-fit, minmax(220px, 1fr)); gap: 12px 22px; margin-top: 8px; }
        .curves figcaption { font-size: 13px; font-variant-numeric: tabular-nums; }
        main { display: grid; grid-template-columns: minmax(0, 1fr) minmax(0, 1fr); gap: 14px; padding: 12px 20px 28px; max-width: 1320px; margin: 0 auto; }
        section { background: var(--panel); border: 1px solid var(--edge); border-radius: 8px; padding: 14px 16px; min-width: 0; }
        .wide { grid-column: 1 / -1; }
        header .badge { color: var(--dim); border: 2px solid currentColor; border-radius: 999px; padding: 1px 12px; font-weight: 600; }
        .normal, header .badge.normal { color: var(--calm); }
        .warning, header .badge.warning { color: var(--warning); }
        .critical, header .badge.critical { color: var(--critical); }
        #connection { margin-left: auto; }
        #trouble, .trouble { margin: 8px auto 0; max-width: 1280px; width: calc(100% - 40px); padding: 10px 14px; border: 2px solid var(--critical); border-radius: 8px;
          background: var(--panel); }
        .stale main { filter: grayscale(1); opacity: 0.75; }
        dl { display: grid; grid-template-columns: repeat(auto-fit, minmax(120px, 1fr)); gap: 6px 18px; margin: 0 0 12px; }
        dt { color: var(--dim); font-size: 13px; }
        dd { margin: 0; font-size: 19px; font-weight: 600; font-variant-numeric: tabular-nums; }
        figure { margin: 0; }
        svg { display: block; width: 100%; }
        svg text { fill: var(--dim); font-size: 12px; font-variant-numeric: tabular-nums; }
        .grid { stroke: var(--edge); stroke-width: 1; }
        .line { fill: none; stroke-width: 2; stroke-linejoin: round; }
        .usage { stroke: var(--usage); }
        .line.whole { stroke: var(--dim); stroke-width: 1.5; stroke-dasharray: 1 3; stroke-linecap: round; }
        .area { fill: var(--fill); }
        .line.warning { stroke: var(--warning); stroke-dasharray: 7 4; }
        .line.critical { stroke: var(--critical); stroke-dasharray: 3 3; }
        .line.limit { stroke: var(--limit); }
        .mark { fill: var(--text); }
        .tile { fill: var(--fill); stroke: var(--panel); stroke-width: 2; }
        .tile.grown { stroke: var(--critical); }
        .tile.unnamed { fill: var(--edge); }
        #heap-map { margin-top: 10px; }
        #heap-map text { fill: var(--text); }
        .legend { display: flex; flex-wrap: wrap; gap: 2px 16px; color: var(--dim); font-size: 13px; margin-bottom: 6px; font-variant-numeric: tabular-nums; }
        .legend svg { display: inline-block; width: 26px; margin-right: 6px; vertical-align: middle; }
        .note { color: var(--dim); margin: 6px 0 0; }
        table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; }
        th { text-align: left; font-weight: 500; color: var(--dim); font-size: 13px; padding: 2px 14px 4px 0; border-bottom: 1px solid var(--edge); vertical-align: bottom; }
        td { padding: 5px 14px 5px 0; border-bottom: 1px solid var(--edge); vertical-align: top; overflow-wrap: anywhere; }
        tr:last-child td { border-bottom: 0; }
        .number { text-align: right; white-space: nowrap; padding-right: 30px; }
        td:last-child, th:last-child { padding-right: 0; }
        figure + div { margin-top: 14px; }
        progress { width: 100%; max-width: 160px; height: 10px; accent-color: var(--usage); }
        .buttons { display: flex; flex-wrap: wrap; gap: 8px; margin: 0; }
        button { font: inherit; color: var(--text); background: var(--ground); border: 1px solid var(--limit); border-radius: 6px; padding: 6px 12px; }
        a { color: var(--usage); }
        :focus-visible { outline: 3px solid var(--usage); outline-offset: 2px; }
        .aside { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); white-space: nowrap; }
        @media (max-width: 720px) {
          header { padding: 10px 12px 0; }
          #connection { margin-left: 0; }
          #trouble, .trouble { width: calc(100% - 24px); }
          main { grid-template-columns: minmax(0, 1fr); padding: 10px 12px 20px; gap: 10px; }
          section { padding: 12px; }
          dl { grid-template-columns: repeat(2, minmax(0, 1fr)); }
          thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%); }
          table, tbody { display: block; }
          tr { display: grid; grid-template-columns: 1fr 1fr; gap: 1px 16px; padding: 6px 0; border-bottom: 1px solid var(--edge); }
          tr:last-child { border-bottom: 0; }
          td, td.number { border: 0; padding: 1px 0; display: flex; justify-content: space-between; gap: 10px; text-align: right; white-space: normal; overflow-wrap: break-word; }
          td::before { content: attr(data-label); color: var(--dim); text-align: left; flex: none; max-width: 60%; }
          td:first-child { font-weight: 600; text-align: left; grid-column: 1 / -1; overflow-wrap: anywhere; }
          td:last-child { overflow-wrap: anywhere; }
          #signals td:last-child { display: block; text-align: left; }
          #signals td:last-child::before { content: none; }
          td:first-child::before { content: none; }
          #caches td:nth-child(2), #actions td:last-child, #tasks td:nth-child(3), #signals td:last-child { grid-column: 1 / -1; }
          td:empty { display: none; }
        }
        @media print { body { background: #fff; } section { break-inside: avoid; } }

        """
}
