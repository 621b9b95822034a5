import Report

await Report.finish()
