import Report

Report.finish()
